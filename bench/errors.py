"""What can end a benchmark run, as one tree, so that the command needs to know the root alone."""


class BenchError(Exception):
    """Root of the tree."""


class PeerUnavailable(BenchError):
    """A peer's environment, exported model or checkpoint is missing; the message names the log."""


class WorkerFailed(BenchError):
    """A worker answered with an error or died; the message has its traceback or the name of its log."""


class GemmFailed(BenchError):
    """The GEMM limit could not be measured."""


class TooFewCpus(BenchError):
    """More CPUs were asked for than this process may use."""


class AnswersDiffer(BenchError):
    """Cenote's vectors or scores are not the reference's; the results were written all the same."""


class LoadFailed(BenchError):
    """A command under measure ended badly; the message has its output or the name of its log."""
