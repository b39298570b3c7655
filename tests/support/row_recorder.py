"""vLLM's worker, made to remember the hidden rows of all that it computed.

It runs inside the worker process and works with the V1 model runner, which is the CPU's.
"""

from typing import Any

Rows = list[tuple[int, int, bytes]]
"""First position, count, and the rows' float32 bytes."""

QUALNAME = "tests.support.row_recorder.RowRecorder"


class RowRecorder:
    """The worker extension."""

    model_runner: Any

    def record_rows(self) -> None:
        """Record from now on."""
        runner = self.model_runner
        compute = runner.execute_model
        recorded: dict[str, Rows] = {}
        runner.recorded_rows = recorded

        def execute_model(scheduled: Any, *args: Any, **kwargs: Any) -> Any:
            result = compute(scheduled, *args, **kwargs)
            state = runner.execute_model_state
            if state is not None:
                _record(recorded, runner.input_batch, scheduled, state.hidden_states)
            return result

        runner.execute_model = execute_model

    def take_rows(self, request_id: str) -> Rows:
        """Return, and forget, the rows of the request that has this name outside of vLLM."""
        recorded = self.model_runner.recorded_rows
        names = [name for name in recorded if name.rsplit("-", 1)[0] == request_id]
        return [rows for name in names for rows in recorded.pop(name)]

    def known_requests(self) -> list[str]:
        """Return the requests that the worker has a state for."""
        runner = self.model_runner
        return [*runner.requests, *runner.input_batch.req_id_to_index]


def _record(recorded: dict[str, Rows], batch: Any, scheduled: Any, hidden: Any) -> None:
    first = 0
    for index, name in enumerate(batch.req_ids):
        count = scheduled.num_scheduled_tokens.get(name, 0)
        if count:
            position = int(batch.num_computed_tokens_cpu[index])
            rows = hidden[first : first + count].float().numpy().tobytes()
            recorded.setdefault(name, []).append((position, count, rows))
        first += count
