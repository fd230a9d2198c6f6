//! Fuzzes the admission of HTTP requests by the gateway: with any head, nothing is let in but for this machine,
//! from its own pages, and with the token.

use afresh_core::gateway::http::{Admitted, Gate};
use afresh_core::gateway::settings::{FrontSettings, Token};
use afresh_core::http_access::{Caller, Guard};
use afresh_daemon::fuzzing::admit_request;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::http::request::Parts;

use crate::is_planted;

const PORT: u16 = 8900;
const SECRET: &str = "t0ken";
const BODY_BYTES_MAX: u64 = 1_000;
const SCHEME_END: &str = "://";
const PAGE: &str = "https://chat.example";

pub fn check(data: &[u8]) {
    let Some((parts, body)) = request(data) else { return };
    let token = Token { secret: SECRET.to_owned(), access: Default::default() };
    let settings = FrontSettings {
        tokens: vec![token],
        allowed_hosts: vec!["gateway.example".to_owned()],
        allowed_origins: vec![PAGE.to_owned()],
        body_bytes_max: BODY_BYTES_MAX,
        ..FrontSettings::default()
    };
    let gate = Gate::new(&settings, PORT);
    let mut outcome = admit_request(&parts, &gate, body);
    let headers = &parts.headers;
    if is_planted() && parts.method == "GET" && values(headers, &ORIGIN).len() == 2 {
        outcome = Ok(Admitted::Get(Some(0)));
    }
    match outcome {
        Ok(Admitted::Health) => assert_eq!(parts.uri.path(), "/health"),
        Ok(admitted) => {
            check_caller(&parts);
            let is_preflight = admitted == Admitted::Preflight;
            assert!(is_preflight || has_token(headers), "let in without the token");
            if let Admitted::Post(_) = admitted {
                assert_eq!(parts.method, "POST");
            }
        }
        Err(refusal) => {
            assert!((400..600).contains(&refusal.status));
            let body: serde_json::Value = serde_json::from_slice(&refusal.body()).expect("JSON");
            assert!(body["error"]["code"].is_i64(), "{body}");
        }
    }
    check_control(headers);
}

/// The request, as hyper would hand it over, and the bytes behind its head.
fn request(data: &[u8]) -> Option<(Parts, &[u8])> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut parsed = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(end) = parsed.parse(data).ok()? else { return None };
    let mut builder = hyper::Request::builder().method(parsed.method?).uri(parsed.path?);
    for header in parsed.headers.iter() {
        builder = builder.header(header.name, header.value);
    }
    Some((builder.body(()).ok()?.into_parts().0, &data[end..]))
}

fn check_caller(parts: &Parts) {
    let headers = &parts.headers;
    let host = match parts.uri.authority() {
        Some(authority) => authority.as_str().to_owned(),
        None => {
            let hosts = values(headers, &HOST);
            assert_eq!(hosts.len(), 1, "let in with several hosts or none");
            String::from_utf8_lossy(hosts[0]).into_owned()
        }
    };
    let host = host.to_ascii_lowercase();
    let own = ["127.0.0.1:8900", "localhost:8900", "[::1]:8900"];
    let is_named = host == "gateway.example" || host.starts_with("gateway.example:");
    assert!(own.contains(&&*host) || is_named, "let in for `{host}`");
    let origins = values(headers, &ORIGIN);
    assert!(origins.len() <= 1, "let in with several origins");
    for origin in origins {
        let origin = String::from_utf8_lossy(origin).to_ascii_lowercase();
        let (_, its_host) = origin.split_once(SCHEME_END).expect("an origin has a scheme");
        assert!(its_host == host || origin == PAGE, "let in from `{origin}`");
    }
}

fn has_token(headers: &HeaderMap) -> bool {
    let all = values(headers, &AUTHORIZATION);
    let [one] = all[..] else { return false };
    let text = String::from_utf8_lossy(one).into_owned();
    let Some((scheme, token)) = text.split_once(' ') else { return false };
    scheme.eq_ignore_ascii_case("bearer") && token.trim() == SECRET
}

fn values<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<&'a [u8]> {
    headers.get_all(name).iter().map(|value| value.as_bytes()).collect()
}

/// The same head for the control API, which has hosts and origins of its own machine alone.
fn check_control(headers: &HeaderMap) {
    let single = |name: &HeaderName| match values(headers, name)[..] {
        [one] => std::str::from_utf8(one).ok(),
        _ => None,
    };
    let caller = Caller {
        host: single(&HOST),
        origin: headers.contains_key(ORIGIN).then(|| single(&ORIGIN)),
        authorization: single(&AUTHORIZATION),
    };
    if Guard::new(PORT, SECRET.to_owned()).admits(caller).is_ok() {
        let host = caller.host.expect("it was let in").to_ascii_lowercase();
        assert!(has_token(headers) && host.ends_with(":8900"));
        let origin = caller.origin.map(|origin| origin.expect("a text").to_ascii_lowercase());
        assert!(origin.is_none_or(|origin| origin == ["http", SCHEME_END, &host].concat()));
    }
}
