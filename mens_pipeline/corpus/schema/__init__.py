"""Records, pairs, and the reasons for dropping them."""
