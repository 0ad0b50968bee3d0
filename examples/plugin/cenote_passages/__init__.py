"""What the package brings to Cenote; nothing heavy is imported until it is asked for."""


def passages() -> str:
    """The class of the IO processor `passages`."""
    return "cenote_passages.processor.Passages"
