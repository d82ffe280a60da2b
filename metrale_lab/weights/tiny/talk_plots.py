"""Plots with more talk in them, in the form of `plots`."""

from __future__ import annotations

from metrale_lab.weights.tiny.plots import Plot

SECRET: Plot = (
    (
        "One day, {a.name} found a little door {spot}.",
        "Behind {place} there was a door that nobody knew. {a.Name} found it.",
    ),
    (
        '"Where does it go?" asked {b.name}. "I do not know," said {a.name}.',
        '"Should we open it?" whispered {b.name}.',
    ),
    (
        "The door was locked, but the key was {nowhere}.",
        "They knocked three times, and the door opened.",
    ),
    (
        "Inside there was a garden full of {colour} flowers.",
        "Inside it was warm, and it smelled of {food}.",
    ),
    (
        'There sat {c.intro}. "Welcome!" said {c.name}. "I have waited for you."',
        '"Who are you?" asked {c.intro}. "We are friends," said {a.name}.',
    ),
    (
        "{c.Name} gave them {treat} and told them a long story.",
        '{c.Name} gave {a.name} {treasure} and said, "Keep it well."',
    ),
    (
        "They told nobody about the door. It was their secret.",
        '"Come back soon," said {c.name}.',
    ),
)
NEWCOMER: Plot = (
    (
        "One day, somebody new came to {place}. It was {b.intro}.",
        "{a.Name} saw {b.intro} all alone in {place}.",
    ),
    (
        "Nobody wanted to play with {b.him}, because {b.he} was very quiet.",
        '"{b.He} looks different," said the others, and they ran away.',
    ),
    (
        '{a.Name} went to {b.him}. "Hello, my name is {a.plain}," {a.he} said.'
        ' "What is your name?"',
        "{a.Name} did not laugh. {a.He} sat down next to {b.him}.",
    ),
    (
        '"I am {b.plain}," said {b.name}. "I have no friends here."',
        "{b.Name} looked up and smiled a little.",
    ),
    (
        '"Do you want to play with my {thing}?" asked {a.name}. "Yes, please!" said {b.name}.',
        '"Now you have one," said {a.name}.',
    ),
    (
        "They played with the {thing} until it was dark.",
        "{b.Name} could sing so well that even {c.intro} came to listen.",
    ),
    (
        "Soon the others came too, and everybody wanted to play.",
        '"I was wrong," said {c.intro}. "{b.Plain} is very nice."',
    ),
)
TRUTH: Plot = (
    (
        "{a.Name} took the {thing} of {b.name} without asking.",
        "{a.Name} played with the {thing} of {b.name}, and it broke.",
    ),
    (
        "{a.He} hid it {spot} and ran home.",
        '"Oh no," said {a.name}. "What should I do?"',
    ),
    (
        '"Have you seen my {thing}?" asked {b.name}. "No," said {a.name}.',
        '"Who did this?" asked {b.name}. {a.Name} said nothing.',
    ),
    (
        "That night, {a.name} could not sleep. {a.His} belly felt bad.",
        '{c.Intro} saw {a.his} sad face. "Tell the truth," {c.he} said.',
    ),
    (
        'In the morning {a.he} went to {b.name}. "It was me," {a.he} said. "I am sorry."',
        '"I did it," said {a.name}, and a tear ran down {a.his} face.',
    ),
    (
        '{b.Name} was quiet for a moment. "Thank you for telling me," {b.he} said.',
        '"I am a little angry," said {b.name}, "but you are still my friend."',
    ),
    (
        "They fixed the {thing} together with some string.",
        "They put the {thing} on the table and ate {treat}.",
    ),
)
TALENT: Plot = (
    (
        "{a.Name} wanted to sing like the birds, but {a.his} voice was not nice.",
        "{a.Name} wanted to dance, but {a.he} always fell over {a.his} own feet.",
        "{a.Name} wanted to paint {place}, but the colors ran down the paper.",
    ),
    (
        '"I am not good at anything," said {a.name}.',
        "The others laughed, and {a.name} went away.",
    ),
    (
        "{a.He} sat {spot} and did not want to come out.",
        "{c.Intro} found {a.him} {spot}.",
    ),
    (
        '"You do not have to be the best," said {b.name}.',
        '"Everybody starts small," said {b.name}. "Do it once more."',
    ),
    (
        "So {a.name} tried every day, in the morning and in the evening.",
        "{b.Name} and {a.name} practiced in {elsewhere} where nobody could see them.",
    ),
    (
        "After many days there was a party in {place}, "
        "and {a.name} was brave and showed it to all.",
        "One evening, everybody stopped and looked. It was beautiful!",
    ),
    (
        'They all clapped. "Again!" they said.',
        '"I knew it," said {b.name} with a big smile.',
    ),
)
