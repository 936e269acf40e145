"""What a run is made of; all of it is its own and ends with it."""
