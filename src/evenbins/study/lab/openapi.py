"""The description of the API, from the declarations of the endpoints: /api/openapi.json (OpenAPI 3.1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import evenbins
from evenbins.study.lab.parameters import Endpoint, Parameter

__all__ = ["describe"]

_STATUS = {
    "400": "A parameter is unknown, repeated, malformed or out of its range.",
    "403": "The request is not from the lab's own pages.",
    "404": "There is no such thing.",
    "413": "The body is too long.",
    "414": "The address is too long.",
    "429": "Too many jobs are running.",
    "503": "Too many requests are waiting.",
}
_COMMON = ("400", "403", "413", "414")
_LAB_HEADER = {
    "name": "X-Evenbins-Lab", "in": "header", "required": True, "schema": {"type": "string", "enum": ["1"]},
    "description": "Says that the request is not a foreign page's.",
}  # fmt: skip
_ID = {
    "name": "id", "in": "path", "required": True,
    "schema": {"type": "string", "pattern": "^[0-9a-f]{32}$"}, "description": "As POST gave it.",
}  # fmt: skip


def describe(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Describe the endpoints and the jobs."""
    paths: dict[str, Any] = {}
    for each in endpoints:
        parameters = [_parameter(one) for one in each.parameters]
        tag = each.path.split("/")[0]
        operation: dict[str, Any] = {}
        operation |= {"summary": each.summary, "operationId": each.path.replace("/", "-"), "tags": [tag]}
        if each.upload:
            answers = {"200": _content("The answer.", {"type": "object"})}
            body = {"required": True, "content": {"application/octet-stream": {"schema": {}}}}
            operation |= {"parameters": [*parameters, _LAB_HEADER], "requestBody": body}
            operation |= {"responses": answers | _errors("503")}
            paths[each.url] = {"post": operation}
        elif each.job:
            answers = {"202": _content("The job has begun.", _reference("Job"))}
            operation |= {"parameters": [*parameters, _LAB_HEADER], "responses": answers | _errors("429")}
            paths[each.url] = {"post": operation}
        else:
            schema = {"type": "object"} if each.media_type == "application/json" else {"type": "string"}
            answers = {"200": _content("The answer.", schema, each.media_type)}
            operation |= {"parameters": parameters, "responses": answers | _errors("404", "503")}
            paths[each.url] = {"get": operation}
    paths["/api/jobs/{id}"] = {
        "get": {
            "summary": "How far a job is, and its result.", "operationId": "job", "tags": ["jobs"],
            "parameters": [_ID],
            "responses": {"200": _content("The job.", _reference("Job"))} | _errors("404"),
        },
        "delete": {
            "summary": "Cancel a job; one that has ended stays as it is.",
            "operationId": "cancel", "tags": ["jobs"],
            "parameters": [_ID, _LAB_HEADER],
            "responses": {"200": _content("The job.", _reference("Job"))} | _errors("404"),
        },
    }  # fmt: skip
    paths["/api/openapi.json"] = {
        "get": {
            "summary": "This description.", "operationId": "openapi", "tags": ["lab"], "parameters": [],
            "responses": {"200": _content("The description.", {"type": "object"})} | _errors(),
        }
    }  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "evenbins lab", "version": evenbins.__version__,
            "description": "What the pages of `evenbins lab` ask their server.",
        },
        "paths": paths,
        "components": {"schemas": {"Error": _ERROR, "Job": _JOB}},
    }  # fmt: skip


_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
_JOB = {
    "type": "object",
    "required": ["id", "path", "state", "progress"],
    "properties": {
        "id": _ID["schema"],
        "path": {"type": "string"},
        "state": {"type": "string", "enum": ["running", "done", "failed", "cancelled"]},
        "progress": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
        "result": {"description": "What the endpoint's function gave."},
        "error": {"type": "string"},
    },
}


def _parameter(each: Parameter) -> dict[str, Any]:
    return {
        "name": each.name, "in": "query", "required": each.required, "description": each.help,
        "schema": each.schema(),
    }  # fmt: skip


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(text: str, schema: dict[str, Any], media_type: str = "application/json") -> dict[str, Any]:
    return {"description": text, "content": {media_type: {"schema": schema}}}


def _errors(*more: str) -> dict[str, Any]:
    return {status: _content(_STATUS[status], _reference("Error")) for status in sorted({*_COMMON, *more})}
