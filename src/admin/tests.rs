//! Bodies, codes and headers byte for byte.

use super::*;
use axum::body::Body;
use bytes::Bytes;
use flate2::read::GzDecoder;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use std::io::Read;
use tower::ServiceExt;

struct State {
    phase: Phase,
    alarms: Vec<AlarmKind>,
    leader: bool,
    learner: bool,
    linear: Result<(), String>,
    local: Result<(), String>,
    versions: Versions,
    notices: Vec<String>,
    fenced: Option<String>,
}

struct Fake(Mutex<State>, Mutex<Vec<(&'static str, &'static str, bool)>>);

impl HealthSource for Fake {
    fn phase(&self) -> Phase {
        self.0.lock().phase.clone()
    }
    fn alarms(&self) -> Vec<AlarmKind> {
        self.0.lock().alarms.clone()
    }
    fn notices(&self) -> Vec<String> {
        self.0.lock().notices.clone()
    }
    fn fenced(&self) -> Option<String> {
        self.0.lock().fenced.clone()
    }
    fn has_leader(&self) -> bool {
        self.0.lock().leader
    }
    fn is_learner(&self) -> bool {
        self.0.lock().learner
    }
    fn read(&self, linearizable: bool) -> ReadFuture {
        let state = self.0.lock();
        let result = if linearizable { &state.linear } else { &state.local };
        let result = result.clone();
        Box::pin(async move { result })
    }
    fn versions(&self) -> Versions {
        self.0.lock().versions.clone()
    }
    fn health_answered(&self, healthy: bool) {
        self.1.lock().push(("health", "", healthy));
    }
    fn checked(&self, kind: &'static str, name: &'static str, ok: bool) {
        self.1.lock().push((kind, name, ok));
    }
}

impl MetricsSource for Fake {
    fn text(&self) -> Vec<u8> {
        b"# TYPE a counter\na 1\n".to_vec()
    }
    fn protobuf(&self) -> Option<Vec<u8>> {
        Some(b"delimited".to_vec())
    }
}

impl DebugSource for Fake {
    fn vars(&self) -> Vec<(String, serde_json::Value)> {
        vec![
            ("cmdline".to_owned(), serde_json::json!(["assay"])),
            ("file_descriptor_limit".to_owned(), serde_json::json!(1024)),
        ]
    }

    fn upgrade(&self) -> Option<serde_json::Value> {
        (self.0.lock().phase == Phase::Ready).then(|| serde_json::json!({ "cluster": 1 }))
    }

    fn finalize_upgrade(&self) -> TextFuture {
        let State { leader, ref linear, .. } = *self.0.lock();
        let linear = linear.clone();
        Box::pin(async move {
            match leader {
                true => linear.map(|()| "level 2".to_owned()).map_err(NotDone::Unavailable),
                false => Err(NotDone::Conflict("not the leader".to_owned())),
            }
        })
    }
}

fn fake() -> Arc<Fake> {
    let state = State {
        phase: Phase::Ready,
        alarms: Vec::new(),
        leader: true,
        learner: false,
        linear: Ok(()),
        local: Ok(()),
        versions: Versions { server: "3.7.1".to_owned(), cluster: None, storage: None },
        notices: Vec::new(),
        fenced: None,
    };
    Arc::new(Fake(Mutex::new(state), Mutex::default()))
}

fn admin(fake: &Arc<Fake>) -> Admin {
    Admin {
        health: fake.clone(),
        metrics: fake.clone(),
        debug: fake.clone(),
        access: Arc::default(),
        trust: Trust {
            check: |extensions| extensions.get::<Trusted>().is_some(),
            origin: |_| "10.0.0.9".to_owned(),
            ways: "use http://127.0.0.1:1".into(),
        },
    }
}

#[derive(Clone)]
struct Trusted;

struct Got {
    status: u16,
    headers: http::HeaderMap,
    body: Bytes,
}

impl Got {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

async fn send(routes: Router, request: http::request::Builder) -> Got {
    let response: Response<Body> =
        routes.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Got { status: parts.status.as_u16(), headers: parts.headers, body }
}

async fn get(fake: &Arc<Fake>, path: &str) -> Got {
    send(admin(fake).client_routes(Router::new()), Request::get(path)).await
}

fn assert_error(got: &Got, status: StatusCode, body: &str) {
    assert_eq!((got.status, got.text()), (status.as_u16(), body));
    assert_eq!(got.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(got.header("x-content-type-options"), Some("nosniff"));
}

#[tokio::test]
async fn health_is_json_without_a_newline_when_true() {
    let fake = fake();
    let got = get(&fake, "/health").await;
    assert_eq!((got.status, got.text()), (200, r#"{"health":"true","reason":""}"#));
    assert_eq!(got.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(got.header("x-content-type-options"), None);
    assert_eq!(*fake.1.lock(), [("health", "", true)]);
}

#[tokio::test]
async fn health_names_the_first_reason() {
    let unhealthy = async |fake: &Arc<Fake>, path: &str, reason: &str| {
        let got = get(fake, path).await;
        let body = format!("{{\"health\":\"false\",\"reason\":\"{reason}\"}}\n");
        assert_error(&got, StatusCode::SERVICE_UNAVAILABLE, &body);
    };
    let fake = fake();
    fake.0.lock().linear = Err("etcdserver: request timed out".to_owned());
    unhealthy(&fake, "/health", "RANGE ERROR:etcdserver: request timed out").await;
    assert_eq!(get(&fake, "/health?serializable=true").await.status, 200);
    unhealthy(&fake, "/health?serializable=1", "RANGE ERROR:etcdserver: request timed out").await;
    fake.0.lock().leader = false;
    unhealthy(&fake, "/health", "RAFT NO LEADER").await;
    assert_eq!(get(&fake, "/health?serializable=true").await.status, 200);
    fake.0.lock().alarms = vec![AlarmKind::NoSpace, AlarmKind::Corrupt];
    unhealthy(&fake, "/health", "ALARM NOSPACE").await;
    unhealthy(&fake, "/health?exclude=NOSPACE", "ALARM CORRUPT").await;
    let both = "/health?exclude=NOSPACE&exclude=CORRUPT";
    unhealthy(&fake, both, "RAFT NO LEADER").await;
}

#[tokio::test]
async fn a_notice_is_shown_and_decides_nothing() {
    let fake = fake();
    let body = |got: &Got| String::from_utf8_lossy(&got.body).into_owned();
    fake.0.lock().notices = vec!["writes are refused".to_owned()];
    let got = get(&fake, "/health").await;
    assert_eq!(got.status, 200);
    assert_eq!(body(&got), "{\"health\":\"true\",\"reason\":\"writes are refused\"}");
    for path in ["/readyz", "/livez", "/livez?verbose"] {
        let got = get(&fake, path).await;
        assert_eq!(got.status, 200, "{path}");
        assert!(!body(&got).contains("refused"), "{path}: {}", body(&got));
    }
    let got = get(&fake, "/readyz?verbose").await;
    assert_eq!(got.status, 200);
    assert!(body(&got).ends_with("[!]writes are refused\nok\n"), "{}", body(&got));
    fake.0.lock().learner = true;
    let got = get(&fake, "/readyz").await;
    assert_eq!(got.status, 503);
    assert!(body(&got).ends_with("[!]writes are refused\n\n"), "{}", body(&got));
    // What makes it unhealthy is the reason then.
    fake.0.lock().leader = false;
    let got = get(&fake, "/health").await;
    assert!(
        body(&got).contains("RAFT NO LEADER") && !body(&got).contains("refused"),
        "{}",
        body(&got)
    );
}

#[tokio::test]
async fn only_get_is_allowed() {
    let fake = fake();
    for path in ["/health", "/livez", "/readyz", "/readyz/non_learner", "/version", "/debug/vars"] {
        for method in ["POST", "HEAD", "DELETE"] {
            let request = Request::builder().method(method).uri(path);
            let got = send(admin(&fake).client_routes(Router::new()), request).await;
            assert_eq!((got.status, got.header("allow")), (405, Some("GET")), "{method} {path}");
            if method != "HEAD" {
                assert_error(&got, StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n");
            }
        }
    }
}

#[tokio::test]
async fn livez_and_readyz_list_their_checks() {
    let fake = fake();
    let ok = async |fake: &Arc<Fake>, path: &str, body: &str| {
        let got = get(fake, path).await;
        assert_error(&got, StatusCode::OK, body);
    };
    ok(&fake, "/livez", "ok\n").await;
    ok(&fake, "/livez?verbose", "[+]serializable_read ok\nok\n").await;
    ok(&fake, "/readyz", "ok\n").await;
    let all = "[+]data_corruption ok\n[+]serializable_read ok\n[+]linearizable_read ok\n\
               [+]non_learner ok\nok\n";
    ok(&fake, "/readyz?verbose=1", all).await;
    ok(&fake, "/readyz/linearizable_read", "ok\n").await;
    ok(&fake, "/readyz/non_learner?verbose", "[+]non_learner ok\nok\n").await;
    {
        let mut state = fake.0.lock();
        state.alarms = vec![AlarmKind::NoSpace, AlarmKind::Corrupt];
        state.linear = Err("etcdserver: no leader".to_owned());
        state.learner = true;
    }
    ok(&fake, "/livez", "ok\n").await;
    let failed = "[-]data_corruption failed: alarm activated: CORRUPT\n\
                  [+]serializable_read ok\n\
                  [-]linearizable_read failed: etcdserver: no leader\n\
                  [-]non_learner failed: not supported for learner\n\n";
    assert_error(&get(&fake, "/readyz").await, StatusCode::SERVICE_UNAVAILABLE, failed);
    let rest = "/readyz?exclude=data_corruption&exclude=linearizable_read&exclude=x";
    let failed = "[+]serializable_read ok\n[-]non_learner failed: not supported for learner\n\n";
    assert_error(&get(&fake, rest).await, StatusCode::SERVICE_UNAVAILABLE, failed);
    // A path with one check ignores `exclude`.
    let one = "/readyz/non_learner?exclude=non_learner";
    let failed = "[-]non_learner failed: not supported for learner\n\n";
    assert_error(&get(&fake, one).await, StatusCode::SERVICE_UNAVAILABLE, failed);
    assert!(fake.1.lock().contains(&("readyz", "non_learner", false)));
    for unknown in ["/livez/non_learner", "/readyz/x", "/readyz/", "/health/"] {
        let got = get(&fake, unknown).await;
        assert_error(&got, StatusCode::NOT_FOUND, "404 page not found\n");
    }
}

/// Whatever is asked for or left out: no probe takes a fenced member for healthy.
#[tokio::test]
async fn a_fenced_member_is_alive_and_never_healthy() {
    let fake = fake();
    fake.0.lock().fenced = Some("differs from the others".to_owned());
    let checks = ["data_corruption", "serializable_read", "linearizable_read", "non_learner"];
    let mut paths: Vec<String> = ["", "?serializable=true", "?exclude=CORRUPT", "?exclude=FENCED"]
        .map(|query| format!("/health{query}"))
        .into();
    paths.extend(checks.map(|check| format!("/readyz/{check}")));
    // Any of the checks left out.
    for left_out in 0..1 << checks.len() {
        let names = checks.iter().enumerate().filter(|(at, _)| left_out & (1 << at) != 0);
        let query: Vec<String> = names.map(|(_, name)| format!("exclude={name}")).collect();
        paths.push(format!("/readyz?{}", query.join("&")));
    }
    for path in &paths {
        for routes in [admin(&fake).metrics_routes(), admin(&fake).client_routes(Router::new())] {
            let got = send(routes, Request::get(path)).await;
            assert_eq!(got.status, 503, "{path}: {}", got.text());
            assert!(got.text().contains("differs from the others"), "{path}: {}", got.text());
            assert!(!got.text().contains("read ok"), "{path}: {}", got.text());
        }
    }
    assert!(fake.1.lock().iter().all(|(_, name, ok)| !ok || *name == "non_learner"));
    for path in ["/livez", "/livez/serializable_read"] {
        assert_eq!(get(&fake, path).await.status, 200, "{path}: a restart would not help");
    }
}

#[tokio::test]
async fn a_start_is_alive_but_not_ready() {
    let fake = fake();
    fake.0.lock().phase = Phase::Starting("replay 43 %".to_owned());
    assert_error(&get(&fake, "/livez").await, StatusCode::OK, "ok\n");
    let unready = StatusCode::SERVICE_UNAVAILABLE;
    assert_error(&get(&fake, "/readyz").await, unready, "startup: replay 43 %\n");
    let body = "{\"health\":\"false\",\"reason\":\"startup: replay 43 %\"}\n";
    assert_error(&get(&fake, "/health").await, unready, body);
}

#[tokio::test]
async fn version_has_no_newline_and_says_what_is_undecided() {
    let fake = fake();
    let got = get(&fake, "/version").await;
    let body = r#"{"etcdserver":"3.7.1","etcdcluster":"not_decided","storage":"unknown"}"#;
    assert_eq!((got.status, got.text()), (200, body));
    assert_eq!(got.header("content-type"), Some("application/json"));
    fake.0.lock().versions.cluster = Some("3.7.0".to_owned());
    fake.0.lock().versions.storage = Some("3.7.0".to_owned());
    let body = r#"{"etcdserver":"3.7.1","etcdcluster":"3.7.0","storage":"3.7.0"}"#;
    let got = send(admin(&fake).peer_routes(), Request::get("/version")).await;
    assert_eq!(got.text(), body);
}

#[tokio::test]
async fn each_port_serves_its_set() {
    let fake = fake();
    for path in ["/version", "/debug/vars", "/members", "/v3/kv/range", "/"] {
        let got = send(admin(&fake).metrics_routes(), Request::get(path)).await;
        assert_error(&got, StatusCode::NOT_FOUND, "404 page not found\n");
    }
    for path in ["/health", "/livez", "/readyz", "/metrics"] {
        assert_eq!(send(admin(&fake).metrics_routes(), Request::get(path)).await.status, 200);
        let got = send(admin(&fake).peer_routes(), Request::get(path)).await;
        assert_error(&got, StatusCode::NOT_FOUND, "404 page not found\n");
    }
}

#[tokio::test]
async fn metrics_come_as_text_or_protobuf_and_compressed() {
    let fake = fake();
    let scrape = async |accept: &str, encoding: &str| {
        let request =
            Request::post("/metrics").header("accept", accept).header("accept-encoding", encoding);
        send(admin(&fake).metrics_routes(), request).await
    };
    let text = "text/plain; version=0.0.4; charset=utf-8";
    let got = scrape("*/*", "identity").await;
    assert_eq!((got.text(), got.header("content-type")), ("# TYPE a counter\na 1\n", Some(text)));
    assert_eq!(got.header("content-encoding"), None);
    let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                    encoding=delimited;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
    let got = scrape(protobuf, "gzip").await;
    assert_eq!(
        got.header("content-type"),
        Some(
            "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
             encoding=delimited"
        )
    );
    assert_eq!(got.header("content-encoding"), Some("gzip"));
    let mut plain = String::new();
    GzDecoder::new(&got.body[..]).read_to_string(&mut plain).unwrap();
    assert_eq!(plain, "delimited");
    let text_first = "text/plain;q=0.9,application/vnd.google.protobuf;\
                      proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6";
    assert_eq!(scrape(text_first, "gzip;q=0").await.header("content-type"), Some(text));
    let compact = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                   encoding=compact-text";
    assert_eq!(scrape(compact, "").await.header("content-type"), Some(text));
}

#[tokio::test]
async fn debug_pages_are_for_trusted_clients_that_read() {
    let fake = fake();
    for path in ["/debug/vars", "/debug/upgrade"] {
        let got = get(&fake, path).await;
        let text = "this request comes from 10.0.0.9: use http://127.0.0.1:1\n";
        assert_error(&got, StatusCode::FORBIDDEN, text);
        let post = Request::post(path).extension(Trusted);
        let got = send(admin(&fake).client_routes(Router::new()), post).await;
        assert_eq!((got.status, got.header("allow")), (405, Some("GET")));
    }
    let upgrade = || {
        let request = Request::get("/debug/upgrade").header("host", "[::1]:1").extension(Trusted);
        send(admin(&fake).client_routes(Router::new()), request)
    };
    let got = upgrade().await;
    assert_eq!((got.status, got.text()), (200, "{\"cluster\":1}\n"));
    assert_eq!(got.header("content-type"), Some("application/json; charset=utf-8"));
    fake.0.lock().phase = Phase::Starting(String::new());
    assert_eq!(upgrade().await.status, 503);
    let request = Request::get("/debug/vars").header("host", "localhost").extension(Trusted);
    let got = send(admin(&fake).client_routes(Router::new()), request).await;
    let body = "{\n\"cmdline\": [\"assay\"],\n\"file_descriptor_limit\": 1024\n}\n";
    assert_eq!(got.text(), body);
    assert_eq!(got.header("content-type"), Some("application/json; charset=utf-8"));
}

#[tokio::test]
async fn hosts_and_origins_are_checked_on_the_client_port() {
    let fake = fake();
    let got = get(&fake, "/health").await;
    assert_eq!(got.header("access-control-allow-origin"), Some("*"));
    assert_eq!(got.header("access-control-allow-methods"), Some("POST, GET, OPTIONS, PUT, DELETE"));
    assert_eq!(
        got.header("access-control-allow-headers"),
        Some("accept, content-type, authorization")
    );
    let strict = || {
        let mut admin = admin(&fake);
        admin.access = Arc::new(Access {
            hosts: vec!["db.local".to_owned(), "::1".to_owned()],
            origins: vec!["https://ui".to_owned()],
            ..Access::default()
        });
        admin.client_routes(Router::new())
    };
    let with = |host: &str| Request::get("/health").header("host", host);
    let got = send(strict(), with("db.local:2379").header("origin", "https://ui")).await;
    assert_eq!(got.status, 200);
    assert_eq!(got.header("access-control-allow-origin"), Some("https://ui"));
    let got = send(strict(), with("[::1]:2379").header("origin", "https://evil")).await;
    assert_eq!((got.status, got.header("access-control-allow-origin")), (200, None));
    let got = send(strict(), with("evil.example:2379")).await;
    assert_eq!(got.status, 421);
    let text = got.text();
    assert!(text.starts_with('\n') && text.contains("unrecognized"), "{text}");
    assert!(text.contains(r#"etcd --host-whitelist "evil.example""#), "{text}");
    assert!(text.contains("CVE-2018-5702"), "{text}");
    let options = Request::options("/health").header("host", "db.local");
    let got = send(strict(), options).await;
    assert_eq!((got.status, got.body.len()), (200, 0));
}

#[tokio::test]
async fn the_old_prefix_is_rewritten() {
    let fake = fake();
    let echo = any(|uri: http::Uri| async move { uri.path().to_owned() });
    let more = Router::new().route("/v3/{*rest}", echo);
    let routes = admin(&fake).client_routes(more);
    let got = send(routes, Request::post("/v3beta/kv/range?x=1")).await;
    assert_eq!((got.status, got.text()), (200, "/v3/kv/range"));
}

#[tokio::test]
async fn an_upgrade_is_finalized_by_people_on_this_machine_only() {
    const PATH: &str = "/debug/upgrade/finalize";
    let fake = fake();
    let ask = |request| send(admin(&fake).client_routes(Router::new()), request);
    assert_eq!(ask(Request::post(PATH)).await.status, 403, "from elsewhere");
    let trusted = || Request::post(PATH).header("host", "127.0.0.1:2379").extension(Trusted);
    let got = ask(trusted()).await;
    assert_eq!((got.status, got.text()), (200, "level 2\n"));
    assert_eq!(ask(trusted().header("origin", "http://here")).await.status, 403, "a browser");
    let got = ask(Request::get(PATH).extension(Trusted)).await;
    assert_eq!((got.status, got.header("allow")), (405, Some("POST")));
    fake.0.lock().linear = Err("no quorum".to_owned());
    let got = ask(trusted()).await;
    assert_eq!((got.status, got.text()), (503, "no quorum\n"));
    fake.0.lock().leader = false;
    let got = ask(trusted()).await;
    assert_eq!((got.status, got.text()), (409, "not the leader\n"));
}

/// Every page for people on this machine, and what a page in their browser can make it send: from
/// elsewhere, or under a name of its own that it points here (DNS rebinding).
#[tokio::test]
async fn no_page_in_a_browser_of_this_machine_gets_through() {
    const PAGES: [(&str, &str); 3] =
        [("GET", "/debug/vars"), ("GET", "/debug/upgrade"), ("POST", "/debug/upgrade/finalize")];
    let fake = fake();
    let ask = async |method: &str, path: &str, headers: &[(&str, &str)]| {
        let mut admin = admin(&fake);
        admin.access = Arc::new(Access {
            hosts: vec!["*".to_owned(), "db.local".to_owned()],
            names: vec!["node.example".to_owned()],
            is_encrypted: |extensions| extensions.get::<Encrypted>().is_some(),
            ..Access::default()
        });
        let mut request = Request::builder().method(method).uri(path).extension(Trusted);
        for (name, value) in headers {
            request = match *name {
                "tls" => request.extension(Encrypted),
                _ => request.header(*name, *value),
            };
        }
        send(admin.client_routes(Router::new()), request).await
    };
    for (method, path) in PAGES {
        for host in [
            "127.0.0.1:2379",
            "[::1]:2379",
            "10.0.0.1",
            "localhost:2379",
            "LOCALHOST",
            "Node.example:1",
            "db.local",
        ] {
            let got = ask(method, path, &[("host", host)]).await;
            assert_eq!(got.status, 200, "{path} at {host}: {}", got.text());
        }
        let own = ("host", "127.0.0.1:2379");
        let refused: [&[(&str, &str)]; 12] = [
            &[],
            &[("host", "")],
            &[("host", "evil.example:2379")],
            &[("host", "127.0.0.1.evil.example")],
            &[("host", "localhost.evil.example:2379")],
            &[own, ("host", "evil.example")],
            &[own, ("origin", "http://evil.example")],
            &[own, ("origin", "null")],
            &[own, ("origin", "http://127.0.0.1:2379")],
            &[own, ("sec-fetch-site", "cross-site")],
            &[own, ("sec-fetch-site", "same-site")],
            &[own, ("referer", "http://evil.example/")],
        ];
        for headers in refused {
            let got = ask(method, path, headers).await;
            assert_eq!(got.status, 403, "{method} {path} {headers:?}: {}", got.text());
        }
        // A certificate has proven the name; the page behind a request it has not.
        let named = [("host", "evil.example"), ("tls", "")];
        assert_eq!(ask(method, path, &named).await.status, 200, "{path}");
        let behind = [named[0], named[1], ("origin", "https://evil.example")];
        assert_eq!(ask(method, path, &behind).await.status, 403, "{path}");
        // An address that somebody types in; nobody types a POST.
        let typed = ask(method, path, &[own, ("sec-fetch-site", "none")]).await;
        assert_eq!(typed.status, if method == "GET" { 200 } else { 403 }, "{path}");
    }
    let text = "the host \"evil.example\" is no name of this node";
    let got = ask("POST", PAGES[2].1, &[("host", "evil.example")]).await;
    assert!(got.text().starts_with(text), "{}", got.text());
}

#[derive(Clone)]
struct Encrypted;
