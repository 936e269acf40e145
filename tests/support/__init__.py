"""What tests need and no test owns: real servers, waiting, factories."""
