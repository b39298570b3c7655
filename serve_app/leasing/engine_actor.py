"""The engines as actors: each finds its model in a process of its own, and lives and dies with it.

Gateways call them directly; a replica owns them, and they die with it.
"""

import gc
import logging
import os
from typing import Final

from serve_app.clock import MonotonicClock
from serve_app.leasing.engine import EngineProcess, Stage0Engine, Stage1Engine
from serve_app.leasing.stage_plan import StagePlan
from serve_app.logs.process_logs import set_up
from serve_app.metrics.ray_meter import engine_meter
from serve_app.tracing.opening import open_tracer
from stages.engine.ipc_folder import keep_temporary_files_apart
from stages.plugins import load_plugin

log = logging.getLogger(__name__)

EXIT_CODE: Final = 70
"""Of a process whose model died (EX_SOFTWARE of sysexits.h)."""


class Stage0Actor(Stage0Engine):
    """Stage0's engine in its process."""

    def __init__(self, plan: StagePlan) -> None:
        set_up(plan.logs, f"{plan.stage}_engine")
        keep_temporary_files_apart()
        model = load_plugin(plan.model).make_stage0(plan.settings)
        super().__init__(model, plan.limits, _this_process(plan))


class Stage1Actor(Stage1Engine):
    """Stage1's engine in its process."""

    def __init__(self, plan: StagePlan) -> None:
        set_up(plan.logs, f"{plan.stage}_engine")
        keep_temporary_files_apart()
        model = load_plugin(plan.model).make_stage1(plan.settings)
        super().__init__(model, plan.limits, _this_process(plan))


def _this_process(plan: StagePlan) -> EngineProcess:
    clock, meter = MonotonicClock(), engine_meter(plan.stage)
    tracer = open_tracer(plan.tracing, plan.stage, clock=clock, meter=meter)
    return EngineProcess(clock, meter, tracer, end_process, settle_process)


def settle_process() -> None:
    """Spare this process the long garbage collections, of which nothing would come.

    vLLM and torch leave some 600,000 objects that live until the end. To walk through them takes
    half a second, in which every session of the stage waits. Serve does the same for its replicas.
    """
    gc.collect()
    gc.freeze()


def end_process(reason: str) -> None:
    """End this process at once, since nothing in it is of use any more."""
    log.critical("the model died, so its process ends: %s", reason)
    logging.shutdown()
    os._exit(EXIT_CODE)
