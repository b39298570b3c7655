"""The door as the `openai` package comes through it: handshakes and client secrets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai.types.realtime import RealtimeSessionCreateRequestParam
from openai.types.realtime.client_secret_create_response import ClientSecretCreateResponse
from websockets.exceptions import InvalidStatus

from tests.fakes.server import Service, serving
from tests.fakes.stages import answering
from tests.support.openai_types import object_faults

KEYED: dict[str, Any] = {"api_keys": ("right",), "allow_unauthenticated": False}
SESSION: RealtimeSessionCreateRequestParam = {
    "type": "realtime",
    "instructions": "Be brief.",
    "output_modalities": ["audio"],
    "audio": {
        "input": {
            "format": {"type": "audio/pcm", "rate": 24000},
            "turn_detection": {"type": "server_vad", "silence_duration_ms": 700},
        },
        "output": {"format": {"type": "audio/pcm", "rate": 24000}},
    },
}


@asynccontextmanager
async def client(service: Service, key: str) -> AsyncIterator[openai.AsyncOpenAI]:
    """The package's client, pointed at the service."""
    url = f"http://127.0.0.1:{service.port}/v1"
    async with openai.AsyncOpenAI(api_key=key, base_url=url, max_retries=0) as made:
        yield made


async def test_a_secret_is_made_and_read_as_the_package_does() -> None:
    async with serving(answering(), **KEYED) as service, client(service, "right") as asks:
        raw = await asks.realtime.client_secrets.with_raw_response.create(
            expires_after={"anchor": "created_at", "seconds": 60}, session=SESSION
        )
        made = raw.parse()
        assert object_faults(raw.http_response.json(), ClientSecretCreateResponse) == []
        assert made.value.startswith("ek_")
        assert made.session.type == "realtime"
        assert made.session.instructions == "Be brief."
        assert made.session.model == "scripted"


async def test_a_secret_opens_the_package_a_connection() -> None:
    async with serving(answering(), **KEYED) as service:
        async with client(service, "right") as asks:
            made = await asks.realtime.client_secrets.create(session=SESSION)
        async with (
            client(service, made.value) as page,
            page.realtime.connect(model="any") as line,
        ):
            created = await line.recv()
            assert created.type == "session.created"
            for name, given in made.session.to_dict().items():
                if name not in ("id", "expires_at"):
                    assert created.session.to_dict()[name] == given, name
            await line.session.update(session={"type": "realtime", "max_output_tokens": 77})
            updated = await line.recv()
            assert updated.type == "session.updated"
            assert updated.session.instructions == "Be brief."  # type: ignore[union-attr]
            assert updated.session.max_output_tokens == 77  # type: ignore[union-attr]


async def test_refusals_are_the_packages_own_exceptions() -> None:
    async with serving(answering(), **KEYED) as service:
        async with client(service, "wrong") as stranger:
            with pytest.raises(openai.AuthenticationError):
                await stranger.realtime.client_secrets.create()
            with pytest.raises(InvalidStatus) as refused:
                await stranger.realtime.connect(model="any").enter()
            assert refused.value.response.status_code == 401
        async with client(service, "right") as asks:
            with pytest.raises(openai.BadRequestError) as bad:
                await asks.realtime.client_secrets.create(
                    expires_after={"anchor": "created_at", "seconds": 5}
                )
            assert (bad.value.code, bad.value.param) == ("invalid_value", "expires_after.seconds")
            assert bad.value.type == "invalid_request_error"
            with pytest.raises(openai.BadRequestError) as bad:
                await asks.realtime.client_secrets.create(session={"type": "transcription"})
            assert bad.value.param == "session.type"
