"""WikiText's tokens become natural text and come back byte for byte."""

import numpy as np

from lightning_modules.zero_shot.detokenise import natural, tokens

ARTICLE = """ 
 = Homarus gammarus = 
 
 Homarus gammarus , called the European lobster , grows to 60 cm ( 24 in ) and 0 @.@ 7 – 2 @.@ 2 kg ; it has claws . 
 Mr. Hall 's boat , " The U.S. Lobster " , cost $ 1 @,@ 000 at 10 : 3 and wasn 't red @-@ tipped [ sic ] ... e.g. 5 % ! 
 
 = = = 2006 – present = = = 
"""


def test_natural_text_has_no_marks_of_tokens():
    text = natural(ARTICLE)
    assert "gammarus, called the European lobster, grows to 60 cm (24 in) and 0.7 – 2.2 kg; it has claws." in text
    assert 'Mr. Hall\'s boat, "The U.S. Lobster", cost $1,000' in text
    assert "wasn't red-tipped [sic] ... e.g. 5%!" in text
    assert "=== 2006 – present ===" in text
    assert "@" not in text


def test_the_way_back_gives_the_file_again():
    assert tokens(natural(ARTICLE)) == ARTICLE


def test_nothing_is_lost_whatever_the_text():
    noise, letters = np.random.default_rng(0), list("ab A.9,-@\"'()=:;!?% $s  \n\u2028")
    for _ in range(3000):
        text = "".join(noise.choice(letters, size=noise.integers(40)))
        assert tokens(natural(text)) == text
        assert natural(tokens(text)) == text
