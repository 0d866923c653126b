"""Sessions of browsers: the cookie, signing in and out, and the proof that a form comes from a page of ours.

The cookie is a token that the same rules accept as any other: it is revoked with the token that its owner signed in
with, and lasts at most twelve hours. The API never reads it. A change needs three things: the cookie, which a browser
withholds from forms of other sites; an `Origin` that is this server; and the form token, which only a page of this
session contains. The form token is a keyed hash of the cookie, so that every server of the installation knows it.
"""

import hmac
from hashlib import sha256
from typing import Any

from litestar import Request
from litestar.datastructures import Cookie
from msgspec import Struct

from gnomon.api.callers import caller_of_token
from gnomon.api.route import ApiServices
from gnomon.errors import Forbidden, TokenMissing, Unauthenticated
from gnomon.ports.auth import Caller, SessionTokens
from gnomon.ui.view import ReaderView

#: The path of all pages, and of the cookie.
ROOT = "/ui/"
#: The name of the field with the form token.
FORM_TOKEN = "form_token"  # noqa: S105 - a name
#: A part of the name of the cookie that keeps zone and theme, and how long it does.
_VIEW, _VIEW_SECONDS = "-view", 365 * 24 * 3600
AnyRequest = Request[Any, Any, Any]


class Session(Struct, frozen=True, kw_only=True):
    """An authenticated caller, and the form token of its pages."""

    caller: Caller
    form_token: str
    #: Whether there is a cookie: without verified tokens, everybody is signed in.
    has_cookie: bool


class Sessions:
    """Identifies the callers of pages."""

    def __init__(self, services: ApiServices, tokens: SessionTokens) -> None:
        self._services = services
        self._tokens = tokens

    async def find(self, request: AnyRequest) -> Session:
        """The session of the request; Unauthenticated if it has none that counts."""
        cookie = request.cookies.get(_cookie_name(request), "")
        caller = await self._identify(request, cookie)
        return Session(caller=caller, form_token=await self._form_token(cookie), has_cookie=bool(cookie))

    async def sign_in(self, request: AnyRequest, token: str) -> Cookie:
        """The cookie of a new session; Unauthenticated if the token is not valid."""
        caller = await self._identify(request, token)
        return self._begun(request, token, caller)

    def _begun(self, request: AnyRequest, token: str, caller: Caller) -> Cookie:
        now = self._services.clock.now()
        made = self._tokens.session_token(token, caller, now=now)
        return _cookie(request, made.text, max_age=max(0, made.expires_at - now) // 1000)

    async def sign_in_by_code(self, request: AnyRequest, code: str) -> Cookie:
        """The cookie of a new session of the caller of a code; Unauthenticated if the code does not count."""
        try:
            caller = await self._services.sign_in_codes.redeem(code)
        except Unauthenticated as error:
            self._services.login_failed(error, "unknown" if request.client is None else request.client.host)
            raise
        return self._begun(request, "", caller)

    def view(self, request: AnyRequest) -> ReaderView:
        """How the reader of this browser wants to see pages."""
        return ReaderView.from_cookie(request.cookies.get(_cookie_name(request, _VIEW), ""))

    def view_cookie(self, request: AnyRequest, view: ReaderView) -> Cookie:
        """The cookie that keeps how the reader wants to see pages."""
        return _cookie(request, view.as_cookie(), max_age=_VIEW_SECONDS, subject=_VIEW)

    async def _identify(self, request: AnyRequest, token: str) -> Caller:
        """The caller of the token. An invalid token is a failed authentication."""
        try:
            return await self._caller_with_role(token)
        except Unauthenticated as error:
            # A browser without a session is only shown the way to the form.
            if request.method == "POST" or not isinstance(error, TokenMissing):
                self._services.login_failed(error, "unknown" if request.client is None else request.client.host)
            raise

    async def _caller_with_role(self, token: str) -> Caller:
        caller = await caller_of_token(self._services, token)
        if not caller.roles:
            raise Unauthenticated("the token has no role here")
        return caller

    def ended(self, request: AnyRequest) -> Cookie:
        """The cookie that ends the session in the browser."""
        return _cookie(request, "", max_age=0)

    async def check_form(self, request: AnyRequest, session: Session, form_token: str) -> None:
        """Raise Forbidden unless the form was sent by a page of this session."""
        check_origin(request)
        if not hmac.compare_digest(form_token.encode(), session.form_token.encode()):
            raise Forbidden("the form belongs to another session: load the page again")

    async def _form_token(self, cookie: str) -> str:
        # Without a cookie everybody is an admin, and the key of the store is what other sites do not know.
        key = cookie.encode() or await self._services.cursor_key()
        return hmac.new(key, b"gnomon form", sha256).hexdigest()


def check_origin(request: AnyRequest) -> None:
    """Raise Forbidden unless a browser says that a page of this server sends the request."""
    origin = request.headers.get("origin", "")
    if origin.partition("://")[2] != request.headers.get("host") or not origin.startswith(("http://", "https://")):
        raise Forbidden("the form was not sent by a page of this server")


def _cookie_name(request: AnyRequest, subject: str = "") -> str:
    # Cookies do not know ports: two servers of one machine would overwrite each other's.
    port = (request.scope.get("server") or ("", 0))[1]
    return f"{'__Host-' if _is_secure(request) else ''}gnomon{subject}-{port}"


def _cookie(request: AnyRequest, value: str, *, max_age: int, subject: str = "") -> Cookie:
    secure = _is_secure(request)
    return Cookie(
        key=_cookie_name(request, subject),
        value=value,
        max_age=max_age,
        # The prefix __Host- demands the path of all pages; only those of the dashboard read it.
        path="/" if secure else ROOT,
        secure=secure,
        httponly=True,
        samesite="lax",
    )


def _is_secure(request: AnyRequest) -> bool:
    return bool(request.url.scheme == "https")
