"""What is raised when the engine starts. Nothing of SGLang is imported: it may be another one."""


class InterfaceChanged(RuntimeError):
    """The installed SGLang is not one that this was written for."""


class NotCovered(ValueError):
    """The engine is set up with something that this cache does not do."""
