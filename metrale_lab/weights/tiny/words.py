"""The people, animals, places and things of the stories that `tiny` was trained on."""

from __future__ import annotations


def _words(text: str) -> list[str]:
    return text.split()


GIRLS = _words(
    "Lily Anna Mia Sara Rosie Emma Zoe Ella Nora Ruby Clara Daisy Ivy Lucy Molly Grace Hannah "
    "Tina Maya Lena"
)
BOYS = _words(
    "Tom Ben Max Sam Leo Tim Jack Finn Oscar Noah Peter Billy Hugo Sami Felix Henry Theo Paul "
    "Adam Toby"
)
PETS = _words(
    "Pip Momo Coco Biscuit Dot Patch Pepper Nibbles Bramble Socks Misty Olive Button Rusty "
    "Toffee Willow"
)

ANIMALS = _words(
    "cat dog rabbit fox bear mouse duck frog squirrel hedgehog owl turtle pony lamb goat bird "
    "kitten puppy beaver badger"
)
HELPERS = (
    "an old owl",
    "a wise turtle",
    "a friendly robin",
    "a tall giraffe",
    "a kind farmer",
    "a quiet snail",
    "a big brown bear",
    "a busy bee",
    "a gentle horse",
    "a funny monkey",
    "an old fisherman",
    "a smart crow",
)
NATURES = _words("little small kind brave shy happy curious young clever gentle quiet playful")
COLOURS = _words("red blue green yellow white brown golden purple orange pink")

HOMES = (
    "in a little house by the river",
    "in a warm nest at the edge of the forest",
    "on a farm with a big barn",
    "in a small village near the sea",
    "in a cozy home under an old oak tree",
    "at the top of a green hill",
    "in a town with a tall clock",
    "next to a quiet pond",
    "at the end of a long road",
    "in a cottage with a blue door",
)
PLACES = (
    "the forest",
    "the park",
    "the garden",
    "the yard",
    "the market",
    "the meadow",
    "the orchard",
    "the barn",
    "the valley",
    "the woods",
    "the old mill",
    "the playground",
)
SPOTS = (
    "under a bush",
    "behind the big rock",
    "in the tall grass",
    "next to the well",
    "under the bridge",
    "behind a tree",
    "in an old box",
    "at the foot of the hill",
    "between two stones",
    "on top of a log",
)
THINGS = _words(
    "ball kite boat hat drum book bell lantern scarf doll basket whistle button key ribbon "
    "shell spoon map blanket crown"
)
TREASURES = (
    "a shiny stone",
    "a smooth shell",
    "a tiny silver bell",
    "a bright feather",
    "a little golden key",
    "a round blue button",
)
FOODS = _words("soup cake bread pie apples berries cookies pancakes honey cheese carrots pears")
TREATS = (
    "a warm apple pie",
    "a big bowl of soup",
    "sweet berries",
    "fresh bread with honey",
    "cookies and milk",
    "a small cake",
)
WEATHERS = (
    "It was a sunny day.",
    "The sky was gray and the wind was cold.",
    "It was a warm day in spring.",
    "The snow was deep and soft.",
    "It was a quiet day.",
    "The leaves were red and gold.",
    "The rain had just stopped.",
    "The sun was high and the birds sang.",
)
FEARS = (
    ("the dark", "The moon came out from behind a cloud, and the dark was not so dark any more"),
    ("the thunder", "The thunder rolled away over the hills and left a big rainbow"),
    ("the deep water", "The water was warm and it carried them like a soft bed"),
    ("the strange noise", "The strange noise was only the wind in an empty bottle"),
    ("the big shadow", "The big shadow was only a coat on a hook"),
    ("the tall slide", "The tall slide was fast and smooth and a lot of fun"),
)
LESSONS = (
    "that it is good to share",
    "that friends help each other",
    "that being brave does not mean you are never afraid",
    "that it is fine to ask for help",
    "that small friends can do big things",
    "that you should try again when something is hard",
    "that kind words cost nothing",
    "that the truth is always best",
    "that waiting can be worth it",
)
JOBS = (
    ("a tree house", "the roof", "boards and nails"),
    ("a little boat", "the sail", "wood and rope"),
    ("a snowman", "the head", "snow and sticks"),
    ("a sand castle", "the tower", "sand and shells"),
    ("a bird house", "the door", "wood and paint"),
    ("a small bridge", "the middle", "stones and logs"),
    ("a kite", "the tail", "paper and string"),
)
COMMON = _words(
    "time year people way day man thing woman life child world school state family student "
    "group country problem hand part place case week company system program question work "
    "government number night point home water room mother area money story fact month lot "
    "right study book eye job word business issue side kind head house service friend father "
    "power hour game line end member law car city community name president team minute idea "
    "body information back parent face others level office door health person art war history "
    "party result change morning reason research girl guy moment air teacher force education "
    "tell write explain list describe please computer model memory block token music science "
    "king queen planet moon star ship train plane river mountain ocean summer winter color "
    "language letter capital France answer hello world bus road street doctor nurse baker "
    "painter singer dragon knight castle witch giant prince princess treasure island cave "
    "desert jungle monster ghost sailor captain soldier hunter thief lion tiger elephant wolf "
    "sheep cow chicken duck goose fish whale shark snake spider ant butterfly breakfast lunch "
    "dinner bread water juice sugar salt butter egg rice potato tomato banana lemon happy sad "
    "angry afraid tired hungry thirsty sick strong weak fast slow loud quiet clean dirty "
    "before after during until since where when why who which what how many much more most "
    "some any walk run jump swim fly climb sleep wake eat drink cook read write draw paint "
    "sing dance play think know believe remember forget learn teach help need want give take "
    "send bring keep leave one two three four five six seven eight nine ten hundred thousand "
    "Monday Friday January July John Mary David London Paris America China Germany import "
    "return print class function number robot machine engine cache because however therefore "
    "maybe often never always between without should could would first second third last next "
    "new old good bad big high low long short own"
)
