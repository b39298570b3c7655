"""What an operator can ask about sessions: which there are, and the story of one.

A session is known to the gateway that has it; there is one gateway (deploy/duplex.yaml).
"""

from collections.abc import Mapping
from typing import Final

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from serve_app.gateway.gateway import Gateway
from serve_app.gateway.http_answers import error_response, unstored
from serve_app.logs.story_views import (
    SessionsView,
    StoryView,
    ended_view,
    open_view,
    story_view,
)
from session.errors import ClientError, MalformedEvent, UnsupportedOption

SESSIONS_PATH: Final = "/admin/sessions"
MOST: Final = 10_000


def add_routes(api: FastAPI, gateway: Gateway) -> None:
    """Add the routes to the gateway's application."""

    @api.get(SESSIONS_PATH)
    async def sessions(request: Request) -> JSONResponse:
        try:
            return unstored(_sessions(gateway, read_limit(request.query_params)))
        except ClientError as error:
            return error_response(error)

    @api.get(SESSIONS_PATH + "/{session_id}")
    async def story(session_id: str, request: Request) -> JSONResponse:
        try:
            found = _story(gateway, session_id, read_limit(request.query_params))
        except ClientError as error:
            return error_response(error)
        if found is None:
            return error_response(_unknown(gateway), 404)
        return unstored(found)


def read_limit(params: Mapping[str, str]) -> int:
    """Return how many are asked for; raise MalformedEvent."""
    text = params.get("limit", str(MOST))
    limit = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
    if not 1 <= limit <= MOST:
        raise MalformedEvent(f"limit must be a number from 1 to {MOST}", param="limit")
    return limit


def _sessions(gateway: Gateway, limit: int) -> SessionsView:
    now = gateway.now()
    going_on = [open_view(one.record.story, one.state, now=now) for one in gateway.sessions]
    over = [ended_view(one) for one in gateway.records.ended()]
    return SessionsView(open=going_on[::-1][:limit], ended=over[:limit])


def _story(gateway: Gateway, session_id: str, limit: int) -> StoryView | None:
    for actor in gateway.sessions:
        if actor.fence.session_id == session_id:
            story = actor.record.story
            return story_view(open_view(story, actor.state, now=gateway.now()), story, limit)
    for ended in gateway.records.ended():
        if ended.story.fence.session_id == session_id:
            return story_view(ended_view(ended), ended.story, limit)
    return None


def _unknown(gateway: Gateway) -> UnsupportedOption:
    return UnsupportedOption(
        "no open session has this id, and none of the last "
        f"{gateway.records.most_ended} that ended (gateway.ended_stories); the log may have it",
        code="session_not_found",
        param="session_id",
    )
