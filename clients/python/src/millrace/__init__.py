"""A client of the router Millrace.

    from millrace import Client, Problem

    router = Client()                                    # the Unix socket
    router = Client("https://router:8443", token=token, ca="router.crt")
    for route in router.get_routes():
        print(route["to"])
"""

from . import types
from .operations import Operations
from .transport import Answer, Event, Problem


class Client(Operations):
    """A router, at its Unix socket or elsewhere. Each operation of the interface is a method; what is refused raises `Problem`."""


__all__ = ["Answer", "Client", "Event", "Problem", "types"]
