"""What an agent is made of: its spec, its tools and the loop that runs them."""
