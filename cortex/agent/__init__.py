"""The parts of an agent: its spec, its tools and the loop that runs them."""
