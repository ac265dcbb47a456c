"""Errors a user can act on: each message says what was given, what was expected and what to do."""


class ViasdError(Exception):
    """Base of every error that is the input's fault, never the program's; the command line exits with 2."""


class SettingsError(ViasdError):
    """A setting is out of range, or two settings contradict each other."""


class SourceError(ViasdError):
    """Weights could not be found, fetched, verified or read."""


class PairError(ViasdError):
    """Two models cannot work together (vocabulary, special ids, unsupported family)."""


class PromptError(ViasdError):
    """The prompt cannot be decoded from: empty, or longer than the context."""


class TraceError(ViasdError):
    """A trace bundle is missing, malformed, or contradicts itself."""


class MaskError(ViasdError):
    """A layer mask does not fit the verifier it was given to."""


class DataError(ViasdError):
    """A prompt or benchmark file cannot be read."""
