"""The other plots, in the form of `plots`."""

from __future__ import annotations

from metrale_lab.weights.tiny.plots import Plot

HOMEWARD: Plot = (
    (
        "One day, {a.name} went too far into {place} and did not know the way home.",
        "{a.Name} followed a butterfly through {place} until {a.he} was lost.",
    ),
    (
        "It was getting dark, and {a.he} was cold and hungry.",
        '"Hello?" {a.he} called. Nobody answered.',
    ),
    (
        'Then {a.he} met {c.intro}. "Are you lost?" {c.he} asked.',
        "{c.Intro} heard {a.him} cry and came closer.",
    ),
    (
        '"I want to go home," said {a.name}. "Where do you live?" asked {c.name}.',
        '"Can you show me the way?" asked {a.name}.',
    ),
    (
        '"I live {home}," said {a.name}. "I know that place!" said {c.name}.',
        '"Follow the little stars," said {c.name}. "They will lead you."',
    ),
    (
        "They walked past {elsewhere} and over a hill, and then {a.name} saw a light.",
        "{c.Name} walked with {a.him} all the way, and they sang a song.",
    ),
    (
        '{b.Name} was waiting at the door. "There you are!" {b.he} said.',
        "{a.Name} ran to the door and {b.name} gave {a.him} {treat}.",
    ),
)
GIFT: Plot = (
    (
        "It was the birthday of {b.name}, and {a.name} had no gift.",
        'Tomorrow was a big day. {b.Name} had a birthday. "What can I give?" thought {a.name}.',
    ),
    (
        "{a.He} looked in {place}, but {a.he} found only {an_other} with a hole.",
        "{a.He} had no money, so {a.he} could not buy a {thing} at the market.",
    ),
    (
        "Then {a.he} saw {treasure} {spot}.",
        'On the way {a.he} met {c.intro}. "Make something," said {c.name}.',
    ),
    (
        "{a.Name} worked all night and made {a_thing}.",
        "{a.He} took some string and leaves and made {a_thing}.",
    ),
    (
        '"I made it for you," said {a.name} in a small voice.',
        "{a.He} gave it to {b.name} and waited.",
    ),
    (
        '{b.Name} opened the box and smiled. "It is the best gift of all!" {b.he} said.',
        '"Nobody ever made me a {thing}," said {b.name}, and {b.he} hugged {a.him}.',
    ),
)
RACE: Plot = (
    (
        "There was a big race in {place}, and {a.name} wanted to win.",
        '"I bet I can run faster than you," said {b.name} to {a.name}.',
    ),
    (
        "They ran from {place} to {elsewhere}. {b.Name} was very fast.",
        "One, two, three, go! {a.Name} ran as fast as {a.he} could.",
    ),
    (
        "Halfway, {b.name} fell over a root and hurt {b.his} leg.",
        'Then {a.name} saw {b.name} {spot}. "I cannot get up," said {b.name}.',
    ),
    (
        "{a.Name} could run on and win. But {a.he} stopped.",
        '"The race can wait," said {a.name}.',
    ),
    (
        "{a.He} helped {b.name} up, and they walked to the end together.",
        "{a.He} carried {b.name} all the way to {elsewhere}.",
    ),
    (
        "They came last, but {c.intro} gave them both {treat}. "
        '"You are the real winners," {c.he} said.',
        "Everybody cheered for them, and {c.intro} cheered the loudest.",
    ),
)
SEED: Plot = (
    (
        "{c.Intro} gave {a.name} a tiny seed.",
        "One day, {a.name} found a tiny seed {spot}.",
    ),
    (
        "{a.He} put it in the ground and gave it some water.",
        '"I will plant it in the garden," {a.he} said.',
    ),
    (
        "{a.Name} waited one day, and two days, and three days. Nothing grew.",
        "Every morning {a.he} looked, but there was only brown earth.",
    ),
    (
        '"It will never grow," said {a.name}. "Wait a little," said {b.name}.',
        '{b.Name} laughed and said, "Good things take time."',
    ),
    (
        "Then came the rain, and then came the sun.",
        "{a.Name} sang to the seed every night.",
    ),
    (
        "One morning there was a small green leaf!",
        "At last {a_colour} flower opened in the sun.",
    ),
    (
        "It grew and grew until it was as tall as {b.name}.",
        '"You were right," said {a.name} to {b.name}.',
    ),
)
COOK: Plot = (
    (
        "{a.Name} wanted to make {food} for {b.name}.",
        '"Today I will cook {food}," said {a.name}.',
    ),
    (
        "But there was no honey in the house.",
        "{a.He} looked in the kitchen, but the milk was gone.",
        "But the big pot was too heavy for {a.him}.",
    ),
    (
        "So {a.he} took {a.his} basket and went to {place}.",
        "{a.He} asked {c.intro} for help.",
    ),
    (
        '"You can have some of mine," said {c.name}.',
        '{c.Name} said, "I will help you if I can eat with you."',
    ),
    (
        "They mixed and stirred, and the kitchen smelled good.",
        "A little flour fell on the nose of {a.name}, and they laughed.",
    ),
    (
        'When {b.name} came home, the {food} was ready. "This is so good!" {b.he} said.',
        "They all sat down and ate {food} until they were full.",
    ),
)
WISH: Plot = (
    (
        "One night, {a.name} saw a star fall into {place}.",
        "In {place}, {a.name} found {treasure}. It began to glow.",
    ),
    (
        '"You have one wish," said a soft voice.',
        '"Make a wish," said {c.intro}, "but think well."',
    ),
    (
        '"I wish for all the {food} in the world!" said {a.name}.',
        '"I wish I was as big as a house," said {a.name}.',
        '"I wish I could fly," said {a.name}.',
    ),
    (
        "At first it was fun, but soon {a.name} was all alone.",
        "It was nice for a while. But then {a.he} missed {b.name}.",
    ),
    (
        '"I want to go back," {a.he} said. "I want my friend."',
        "{a.He} sat down {spot} and cried.",
    ),
    (
        "The star heard {a.him} and everything was as before.",
        "{b.Name} came and took {a.his} hand, and the magic went away.",
    ),
)
RAIN: Plot = (
    (
        "It rained all day, and {a.name} could not go to {place}.",
        "A big storm came, and {a.name} and {b.name} had to stay inside.",
    ),
    (
        '"I am bored," said {a.name}.',
        "{a.Name} looked at the rain and did not know what to do.",
    ),
    (
        '"Let us play that the bed is a boat," said {b.name}.',
        "{b.Name} found {a_thing} and {an_other} in a box.",
    ),
    (
        "They sailed to {elsewhere} and met {c.intro} who was a pirate.",
        "They made a tent from a blanket and told stories about {c.intro}.",
    ),
    (
        '"Look out, a wave!" said {a.name}, and they both fell on the floor and laughed.',
        "They ate {treat} in the tent.",
    ),
    (
        "When they looked up, the rain had stopped.",
        "Then the sun came out and there was a rainbow over {place}.",
    ),
)
