"""What the viewer's server lets in, and under which headers anything leaves it."""

import pytest

POLICY_FORBIDS = ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'")


@pytest.fixture
def client(recording, get):
    recording.add()
    return get.client


@pytest.mark.parametrize("given", [None, "Bearer wrong", "Basic the-token", "the-token", "Bearer the-token2"])
def test_a_request_without_the_token_in_its_header_is_refused(client, given):
    headers = {} if given is None else {"Authorization": given}
    request = client.build_request("GET", "/api/runs?token=the-token")
    request.headers.pop("Authorization")
    request.headers.update(headers)

    refused = client.send(request)

    assert refused.status_code == 401
    assert "rubricem view" in refused.json()["message"]


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "", "[::1", "10.0.0.1"]
)
def test_a_page_elsewhere_that_points_its_name_at_this_machine_is_refused(client, host):
    for path in ("/", "/api/runs"):
        assert client.get(path, headers={"Host": host}).status_code in (400, 421)


@pytest.mark.parametrize("host", ["localhost:9", "127.0.0.1", "LOCALHOST"])
def test_this_machine_may_be_called_by_its_names_and_through_any_port(client, host):
    assert client.get("/api/runs", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["localhost", "evil.example"])
@pytest.mark.parametrize("path", ["/", "/viewer.js", "/nothing", "/api/runs", "/api/nothing"])
def test_every_answer_and_refusal_has_the_same_headers(client, path, host):
    headers = client.get(path, headers={"Host": host}).headers

    assert all(part in headers["content-security-policy"] for part in POLICY_FORBIDS)
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert "set-cookie" not in headers
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(client, method):
    assert client.request(method, "/api/runs").status_code == 405


@pytest.mark.parametrize(
    ("headers", "content", "status"),
    [
        ({"Content-Type": "application/json", "Origin": "http://127.0.0.1:1"}, b'{"action": "remove"}', 403),
        ({"Content-Type": "application/json"}, iter([b"{}"]), 413),
        ({"Content-Type": "text/plain"}, b"{}", 415),
        ({"Content-Type": "application/json"}, b" " * 20_000, 413),
        ({"Content-Type": "application/json"}, b'{"action": "burn"}', 422),
        ({"Content-Type": "application/json"}, b"{", 422),
    ],
)
def test_a_change_from_another_page_or_of_another_form_is_refused(client, get, headers, content, status):
    assert client.post(f"/api/runs/{get.run}/bank/1", content=content, headers=headers).status_code == status


@pytest.mark.parametrize("path", ["/../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/api/runs/..%2f..%2fetc"])
def test_no_path_leads_out_of_the_page(client, path):
    answer = client.get(path)

    assert answer.status_code == 404
    assert "root:" not in answer.text


def test_an_answer_that_has_not_changed_is_not_sent_again(client):
    first = client.get("/api/runs")

    again = client.get("/api/runs", headers={"If-None-Match": first.headers["etag"]})

    assert (again.status_code, again.content) == (304, b"")
