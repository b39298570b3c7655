"""vLLM as the engine's backend: an AsyncLLM in this process, EngineCore and worker in their own.

Rule 1: one request of vLLM's is one `AsyncLLM.generate()` that a queue feeds. It never ends by
        itself; it is aborted.
Rule 2: sampling is by tokens alone: no text, no logprobs (asking for them in a later segment
        kills vLLM's output loop, and with it every session), no end-of-text but the stop tokens.
Rule 3: whatever vLLM raises for one request reaches one request. Only a dead engine is dead.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Callable
from typing import Any

from stages.engine.backend import BackendDead, BackendFacts, Output, StreamBroken
from stages.engine.inputs import engine_input
from stages.engine.ipc_folder import process_ipc_folder
from stages.engine.settings import EngineSettings
from stages.engine.values import Embeddings, Pieces, Sampling, StopReason

DEATH_POLL_S = 0.1
"""How often vLLM is asked whether it lives: it says so to those who wait for output only."""
ROWS_ON_LOOP = 256
"""Inputs with more rows than this are built in a thread: their rows are hashed."""

LEAST_SHARE = 0.01
"""Of the GPU's memory. vLLM does not start where the share that it may take is not free, even where
it is told in bytes what to take; its own 0.92 never is, beside another engine."""
STOPS = {"stop": StopReason.STOP_TOKEN, "length": StopReason.LENGTH}


class VllmBackend:
    """One vLLM engine."""

    def __init__(self, settings: EngineSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._llm: Any = None

    @property
    def llm(self) -> Any:
        """The running AsyncLLM."""
        return self._llm

    async def start(self) -> BackendFacts:
        """Start the processes and load the model; tens of seconds, the loop is blocked."""
        _quiet_environment()
        # One for all engines of a process: vLLM may remember what it reads.
        os.environ["VLLM_RPC_BASE_PATH"] = str(process_ipc_folder())
        from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: PLC0415 - takes seconds
        from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415

        loggers = _stat_loggers(self._settings)
        args = AsyncEngineArgs(**engine_args(self._settings, has_loggers=bool(loggers)))
        self._llm = AsyncLLM.from_engine_args(args, stat_loggers=loggers)
        return _facts(self._llm)

    def stream(self, request_id: str) -> "VllmStream":
        """Return a new request."""
        return VllmStream(self._llm, request_id, self._settings, self._clock)

    async def dead(self) -> str:
        """Return once vLLM says that it is dead."""
        while not self._llm.errored:  # noqa: ASYNC110 - vLLM has no event for it
            await asyncio.sleep(DEATH_POLL_S)
        return "vLLM's engine process is gone" if self._llm.is_running else "vLLM's loop failed"

    async def call_worker(self, method: str, *args: Any) -> list[Any]:
        """Call a method of `worker_extension_cls`, or of the worker, in each worker."""
        answers: list[Any] = await self._llm.collective_rpc(method, args=args)
        return answers

    async def stop(self) -> None:
        """End vLLM's processes; takes seconds, in a thread."""
        llm, self._llm = self._llm, None
        if llm is None:
            return
        if llm.output_handler is not None:
            llm.output_handler.cancel()  # it would take the end of the engine for its death
        await asyncio.to_thread(llm.shutdown)


class VllmStream:
    """One request of vLLM's."""

    def __init__(
        self, llm: Any, request_id: str, settings: EngineSettings, clock: Callable[[], float]
    ) -> None:
        self._llm = llm
        self._request_id = request_id
        self._settings = settings
        self._clock = clock
        self._inputs: asyncio.Queue[Any] = asyncio.Queue()
        self._outputs: asyncio.Queue[Output | Exception] = asyncio.Queue()
        self._reader: asyncio.Task[None] | None = None
        self._is_over = False

    async def feed(self, pieces: Pieces, sampling: Sampling) -> None:
        """Hand `pieces` to vLLM and let it sample."""
        from vllm.engine.protocol import StreamingInput  # noqa: PLC0415 - takes seconds

        try:
            params = sampling_params(sampling)
        except ValueError as error:
            raise StreamBroken(f"vLLM can not sample like that: {error}") from error
        rows = sum(len(piece) for piece in pieces if isinstance(piece, Embeddings))
        args = (pieces, self._settings.placeholder_ids, self._settings.max_item_rows)
        if rows > ROWS_ON_LOOP:
            prompt = await asyncio.to_thread(engine_input, *args)
        else:
            prompt = engine_input(*args)
        self._inputs.put_nowait(StreamingInput(prompt=prompt, sampling_params=params))
        if self._reader is None:
            work = self._read(params)
            self._reader = asyncio.create_task(work)  # noqa: TID251 - abort() ends it

    async def next(self) -> Output:
        """Return the next output."""
        output = await self._outputs.get()
        if isinstance(output, Exception):
            self._outputs.put_nowait(output)  # it will not get better
            raise output
        return output

    async def abort(self) -> None:
        """Drop the request and wait until EngineCore has."""
        self._is_over = True
        if self._reader is None:
            return
        self._reader.cancel()  # generate() aborts its request when it is cancelled
        await asyncio.wait({self._reader})
        if not self._llm.errored:
            # EngineCore takes messages in their order: an answer to this one means that the
            # abort has been obeyed.
            with contextlib.suppress(Exception):
                await self._llm.is_paused()

    async def _segments(self) -> AsyncGenerator[Any, None]:
        while True:
            segment = await self._inputs.get()
            if self._is_over:
                return
            yield segment

    async def _read(self, params: Any) -> None:
        ended: Exception = StreamBroken("vLLM ended the request")
        try:
            async for answer in self._llm.generate(self._segments(), params, self._request_id):
                (one,) = answer.outputs
                if one.finish_reason not in (None, *STOPS):
                    ended = StreamBroken(f"vLLM ended the request: {one.finish_reason}")
                    continue  # it is the last answer: leaving the loop would leave vLLM's open
                stop = None if one.finish_reason is None else STOPS[one.finish_reason]
                self._outputs.put_nowait(Output(tuple(one.token_ids), self._clock(), stop))
        except Exception as error:  # noqa: BLE001 - rule 3
            is_dead = self._llm.errored
            kind = BackendDead if is_dead else StreamBroken
            ended = kind(f"{type(error).__name__}: {error}")
        self._outputs.put_nowait(ended)


def sampling_params(sampling: Sampling) -> Any:
    """Return vLLM's form of `sampling`."""
    from vllm import SamplingParams  # noqa: PLC0415 - takes seconds
    from vllm.sampling_params import RequestOutputKind  # noqa: PLC0415

    return SamplingParams(
        n=1,
        max_tokens=sampling.max_tokens,
        stop_token_ids=list(sampling.stop_token_ids),
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        repetition_penalty=sampling.repetition_penalty,
        seed=sampling.seed,
        extra_args=None if sampling.extra_args is None else dict(sampling.extra_args),
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )


def engine_args(settings: EngineSettings, *, has_loggers: bool = False) -> dict[str, Any]:
    """Return the arguments of AsyncEngineArgs."""
    args: dict[str, Any] = {
        "model": str(settings.model),
        "tokenizer": str(settings.tokenizer),
        "dtype": settings.dtype,
        "max_model_len": settings.max_model_len,
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "enforce_eager": settings.enforce_eager,
        "load_format": settings.load_format,
        "seed": settings.seed,
        "enable_prefix_caching": settings.enable_prefix_caching,
        "disable_log_stats": not has_loggers,
        "use_tqdm_on_load": False,
        "generation_config": "vllm",  # a folder's own defaults would change the sampling
        # Whatever vLLM remembers of rows by itself, a rebuilt request must not depend on it.
        "mm_processor_cache_gb": 0,
        "skip_mm_profiling": True,
        "enable_mm_embeds": bool(settings.placeholder_ids),
        "worker_extension_cls": settings.worker_extension_cls,
    }
    optional = {
        "kv_cache_memory_bytes": settings.kv_cache_memory_bytes,
        "gpu_memory_utilization": _share(settings),
        "block_size": settings.block_size,
        "logits_processors": list(settings.logits_processors) or None,
        "hf_overrides": dict(settings.hf_overrides) or None,
        "compilation_config": (
            None if settings.cudagraph_mode is None else {"cudagraph_mode": settings.cudagraph_mode}
        ),
    }
    given = {name: value for name, value in optional.items() if value is not None}
    return args | given | dict(settings.more_engine_args)


def _stat_loggers(settings: EngineSettings) -> list[Any] | None:
    """Return what vLLM reports its metrics to; None: nobody."""
    if not (settings.reports_to_ray and _is_in_ray()):
        return None
    from vllm.v1.metrics.ray_wrappers import RayPrometheusStatLogger  # noqa: PLC0415

    return [RayPrometheusStatLogger]


def _is_in_ray() -> bool:
    """Whether this process is one of Ray's; asked of what is there, since nothing here needs it."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _share(settings: EngineSettings) -> float | None:
    if settings.gpu_memory_utilization is None and settings.kv_cache_memory_bytes is not None:
        return LEAST_SHARE
    return settings.gpu_memory_utilization


def _facts(llm: Any) -> BackendFacts:
    cache, model = llm.vllm_config.cache_config, llm.vllm_config.model_config
    return BackendFacts(
        kv_blocks=cache.num_gpu_blocks - 1,  # vLLM keeps one for itself
        block_size=cache.block_size,
        vocab_size=model.get_vocab_size(),
        hidden_size=model.get_hidden_size(),
        dtype=model.dtype,
    )


def _quiet_environment() -> None:
    """Set what vLLM reads at its import, where the operator has not."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    # What it needs lies in the model's folder; nothing is to be looked for anywhere else.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # On a CPU vLLM would bind the threads of every engine to the same cores, as if there were no
    # other engine; on two cores both stages would share the first one.
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    # A fork after torch has used threads hangs.
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
