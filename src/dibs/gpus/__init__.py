"""What the cards say. The only room that knows vendors."""
