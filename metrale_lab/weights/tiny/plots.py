"""Plots: each is a row of stages, each stage a choice of sentences about the cast of `grammar`."""

from __future__ import annotations

Plot = tuple[tuple[str, ...], ...]

OPENINGS = (
    "Once upon a time, there was {a.intro}.",
    "Once upon a time, {a.intro} lived {home}.",
    "Once upon a time, {home}, there lived {a.intro}.",
    "There once was {a.intro} who loved the {thing}s at the market.",
    "There was {a.intro} who lived {home}.",
    "One day, {a.intro} woke up very early.",
    "One morning, {a.intro} looked out of the window. {weather}",
    "{a.Name} lived {home}.",
    "There was {a.intro}. {a.His} best friend was {b.intro}.",
    "{a.Name} and {b.plain} were best friends.",
    "{a.Name} was hungry and wanted {treat}.",
    "{a.Name} sat {spot} and looked at the sky.",
    "{weather} {a.Name} was at home with {b.name}.",
    "This is a story about {a.intro}.",
    "Long ago, {a.intro} lived {home}.",
)
LIKES = (
    "{a.He} liked to play in {place} every day.",
    "{a.He} had {a_thing} that {a.he} loved very much.",
    "{a.He} was always {a.his} own best company, but today {a.he} wanted a friend.",
    "{a.He} loved to eat {food} in the morning.",
    "Every day {a.he} went to {place} to look for something new.",
    "",
)
ENDINGS = (
    "They were happy and went home together.",
    "That night, {a.name} slept well and dreamed of {place}.",
    "From that day on, {a.name} and {b.name} played together every day.",
    "{a.Name} learned {lesson}.",
    "{a.Name} smiled. It was the best day ever.",
    "And they all lived happily ever after.",
    "Then they ate {treat} and laughed until the sun went down.",
    "{a.Name} and {b.name} learned {lesson}.",
)

LOST: Plot = (
    (
        "One day, {a.name} could not find {a.his} {colour} {thing}.",
        "One day, {a.name} lost {a.his} {colour} {thing} in {place}.",
        "But in {place}, the wind took {a.his} {colour} {thing} away.",
    ),
    (
        "{a.He} looked {nowhere}, but it was not there.",
        '"Where is my {thing}?" {a.he} said. {a.He} looked {nowhere} and found only {an_other}.',
        "{a.He} was very sad and began to cry.",
    ),
    (
        '{b.Name} saw {a.him} and asked, "Why are you so sad?"',
        'Then {b.name} came by. "Can I help you?" asked {b.name}.',
    ),
    (
        '"I lost my {thing}," said {a.name}. "Let us look together," said {b.name}.',
        '"My {thing} is gone," said {a.name}. "Do not cry," said {b.name}. "We will find it."',
    ),
    (
        "They looked in {place} and they looked in {elsewhere}.",
        "They met {c.intro} and asked {c.him} for help. {c.Name} pointed to {elsewhere}.",
    ),
    (
        'At last, {b.name} found the {thing} {spot}. "Here it is!" {b.he} said.',
        "There, {spot}, was the {colour} {thing}! {a.Name} jumped for joy.",
    ),
    ('"Thank you, {b.name}!" said {a.name}.', "{a.Name} gave {b.name} a big hug.", ""),
)
STUCK: Plot = (
    (
        "One day, {a.name} heard a small voice in {place}. It was {b.name}.",
        "{a.Name} was walking to {place} when {a.he} heard somebody call for help.",
    ),
    (
        '"Help! I am stuck {spot}," said {b.name}.',
        "{b.Name} had fallen into a deep hole and could not get out.",
    ),
    (
        "{a.Name} pulled and pulled, but {b.name} did not move.",
        "{a.Name} was too small to help alone.",
    ),
    (
        'So {a.he} ran to {c.intro}. "Please come," {a.he} said. "{b.Name} needs us!"',
        '"I will be back," said {a.name}, and {a.he} ran to get {c.intro}.',
    ),
    (
        "{c.Name} had a good idea. {c.He} brought a long rope.",
        '"Hold on to this branch," said {c.name}, "and do not let go."',
    ),
    (
        "One, two, three! Together they pulled {b.name} out.",
        "They all pulled at the same time, and soon {b.name} was free.",
    ),
    (
        '"You saved me!" said {b.name}.',
        "{b.Name} thanked them and gave them {treat}.",
    ),
)
AFRAID: Plot = (
    (
        "{a.Name} was afraid of {fear}.",
        "But there was one thing {a.he} did not like. {a.He} was afraid of {fear}.",
    ),
    (
        '"I cannot go," {a.he} said. "I am too scared."',
        "When {a.his} friends went out to play, {a.he} stayed at home.",
        "At night {a.he} hid under the blanket and did not make a sound.",
    ),
    (
        '{b.Name} sat down next to {a.him}. "I was afraid of {fear} too," {b.he} said.',
        '"Take my hand," said {b.name}. "We will go together."',
    ),
    (
        "They took a lantern and went out step by step.",
        "{a.Name} took a deep breath and opened one eye.",
    ),
    ("{relief}.",),
    (
        '"That is all?" said {a.name}, and {a.he} began to laugh.',
        "{a.Name} was so surprised that {a.he} forgot to be scared.",
    ),
    ("After that, {a.name} was not afraid of {fear} any more.", ""),
)
SHARE: Plot = (
    (
        "One day, {a.name} and {b.name} found {a_thing} in {place}.",
        "In {place}, {a.name} and {b.name} both saw {a_thing} {spot}.",
    ),
    (
        '"It is mine!" said {a.name}. "No, I saw it first!" said {b.name}.',
        "{a.Name} pulled on one side and {b.name} pulled on the other.",
    ),
    (
        "They were both angry and did not talk for a long time.",
        "Then the {thing} fell down with a loud noise.",
    ),
    (
        '{c.Intro} came by and said, "A {thing} is no fun alone."',
        'They asked {c.intro} what to do. "Take turns," said {c.name}.',
    ),
    (
        '"I am sorry," said {a.name}. "You can have it first."',
        "{a.Name} thought about it. Then {a.he} gave the {thing} to {b.name}.",
    ),
    (
        "{b.Name} played with it, and then {a.name} played with it.",
        "So they played with the {colour} {thing} together, and it was much more fun.",
    ),
)
BUILD: Plot = (
    (
        "{a.Name} wanted to build {work}.",
        '"Let us build {work}," said {a.name} to {b.name}.',
    ),
    (
        "{a.He} went to {place} and looked for {stuff}.",
        "They needed {stuff}, so they went to {place}.",
    ),
    (
        "{a.Name} worked all morning, but {hard} fell down.",
        "It looked good, but then the wind came and {hard} broke.",
    ),
    (
        '"I will never finish," said {a.name}.',
        '{a.Name} was angry and kicked a stone. "It is too hard," {a.he} said.',
    ),
    (
        '"Try again," said {b.name}. "I will hold {hard} and you can fix it."',
        '{c.Intro} watched them. "Go slowly," {c.he} said. "Start with the hard part."',
    ),
    (
        "They tried again, and this time it did not fall.",
        "They worked until the sun was low, and at last it was done.",
    ),
    (
        '"Look what we made!" said {a.name}.',
        "Everybody in {place} came to see it.",
    ),
)
