"""What is seen of the cards, and what running attempts use of them."""
