"""What tests are built from: tiny checkpoints, reference numbers, texts. Nothing here is a test."""
