"""Reads meanings out of source: the text of a docstring, and that behind each field of a class."""

import ast
import inspect
import itertools
import textwrap


def attribute_docs(kind: type) -> dict[str, str]:
    """Return the string that follows each annotated field in the source of `kind`."""
    definition = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(definition, ast.ClassDef)
    return docs_in(definition.body)


def docs_in(body: list[ast.stmt]) -> dict[str, str]:
    """Return the string that follows each annotated assignment."""
    docs = {}
    for field, following in itertools.pairwise(body):
        match field, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                docs[name] = summary(text)
            case _:
                pass
    return docs


def summary(text: str) -> str:
    """Return the first paragraph of a docstring as one line, safe in a table."""
    return " ".join(text.strip().split("\n\n")[0].split()).replace("|", "\\|")
