"""The HTTP client for servers outside, with its rules about addresses, secrets and signatures."""
