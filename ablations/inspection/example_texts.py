"""Texts for inspecting a model: simple sentences and common words, written for this purpose.

Small lower-case vocabularies contain most of these words; figures report the missing ones.
"""

HIDDEN = (
    "The [MASK] of England died in 1820.",
    "She put her [MASK] on the table and sat down.",
    "He was born in [MASK] 1901.",
    "It is one of the largest [MASK] in the world.",
    "I have never [MASK] him before.",
    "The old man and his [MASK] lived near the sea.",
)

SENTENCE = "When Mary came back, she gave her brother the letter that he had lost."

GROUPS = {
    "numbers": "one two three four five six seven eight nine ten twenty hundred",
    "months": "january february march april june july august september october november december",
    "pronouns": "i you he she it we they me him her us them",
    "family": "father mother brother sister son daughter wife husband uncle boy girl",
    "places": "england france london paris germany america europe india china york",
    "modal verbs": "can could will would shall should must might cannot",
    "the body": "head face hand hands eyes heart arm arms foot feet hair voice",
}

NEIGHBOURS = ("king", "three", "london", "she", "said", "river", "war", "should", "black", "never")

SENSES = {
    "may": {
        "month": (
            "The school was opened in May of that year.",
            "He died in May and was buried near his wife.",
            "They were married on the first of May.",
            "The war began in May and lasted two years.",
            "On the last day of May the ship came home.",
            "The city was taken on 10 May by the army.",
            "She was born in May in a small town.",
            "Between April and May the water is very high.",
        ),
        "verb": (
            "You may come in when you are ready.",
            "It may be that he never saw the letter.",
            "The word may have come from the old language.",
            "I hope that I may see you again.",
            "They may not know the way to the house.",
            "Some of these plants may grow in dry places.",
            "He may have been the son of a king.",
            "A man may do what he likes with his money.",
        ),
    },
    "left": {
        "side": (
            "He held the letter in his left hand.",
            "She turned to the left and saw the house.",
            "The road on the left goes to the sea.",
            "His left arm was broken in the fall.",
            "He stood at her left side without a word.",
            "The left bank of the river is low.",
            "The boy was blind in his left eye.",
            "You see the church on your left.",
        ),
        "went away": (
            "He left the house before the others woke.",
            "She left her husband and went to Paris.",
            "They left the city in the morning.",
            "The army left the country after the war.",
            "I left my hat in the room.",
            "When we left the ship it was dark.",
            "He left school and became a soldier.",
            "The train left without them.",
        ),
    },
}

QUESTION = "Who found the ring?"
PASSAGE = "Ann lost a ring in the garden. Bob found the ring under a tree and gave it back to her the next day."
