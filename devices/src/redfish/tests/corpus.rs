//! Services as they are built: one row for each deviation from the standard, with the expected result.

use super::*;

const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
const CHASSIS: &str = "/redfish/v1/Chassis/1";
const TOKEN: &str = "X-Auth-Token: abc\r\n";

type Script = fn(&str, &[String]) -> Reply;

/// A name, the result of an order `off` there, how often the action is sent, and the service.
type Row = (&'static str, Result<Power, &'static str>, usize, Script);

fn none(status: u16) -> Reply {
    (status, "", String::new())
}

fn was_ordered(requests: &[String]) -> bool {
    requests.iter().any(|line| line.contains("ResetType"))
}

fn machine(requests: &[String]) -> Json {
    system(if was_ordered(requests) { "Off" } else { "On" })
}

/// The answer, how many actions were sent, and all requests.
async fn served(act: Act, login: &str, script: Script) -> (Result<Answer, DeviceError>, usize, Vec<String>) {
    let stub = Stub::new(script).await;
    let mut order = stub.order(act);
    order.within = std::time::Duration::from_secs(3);
    order.parameters.insert("auth".to_owned(), Value::Plain(login.to_owned()));
    let answer = stub.carry_out(&order).await;
    let requests = stub.requests.lock().clone();
    (answer, requests.iter().filter(|line| line.contains("ResetType")).count(), requests)
}

/// The expected result of an order `off`, and how often the action is sent.
async fn each(rows: &[Row]) {
    for (what, expected, orders, script) in rows {
        let (answer, given, requests) = served(Act::Off, "basic", *script).await;
        match (expected, &answer) {
            (Ok(power), Ok(answer)) => assert_eq!(answer.power, *power, "{what}: {answer:?}"),
            (Err(expected), Err(error)) => assert!(error.to_string().contains(expected), "{what}: {error}"),
            _ => panic!("{what}: {answer:?}"),
        }
        assert_eq!(given, *orders, "{what}: {requests:?}");
    }
}

fn off_and_in(chassis: &[&str]) -> Json {
    let mut system = system("Off");
    system["Links"] = json!({ "Chassis": chassis.iter().map(|id| json!({ "@odata.id": id })).collect::<Vec<_>>() });
    system
}

/// It reports off, refuses `ForceOff`, and the first of its two chassis reports this, the second one off.
fn refuses(line: &str, chassis: &str) -> Reply {
    match line {
        line if line.starts_with("POST") => (409, "", json!({ "error": { "message": "already off" } }).to_string()),
        line if line.ends_with("/Chassis/1") => ok(&json!({ "PowerState": chassis })),
        line if line.ends_with("/Chassis/2") => ok(&json!({ "PowerState": "Off" })),
        line if line.ends_with("/Chassis/rack") => {
            let systems = json!([{ "@odata.id": SYSTEM }, { "@odata.id": "/redfish/v1/Systems/2" }]);
            ok(&json!({ "PowerState": "On", "Links": { "ComputerSystems": systems } }))
        }
        _ => ok(&off_and_in(&[CHASSIS, "/redfish/v1/Chassis/2", "/redfish/v1/Chassis/rack"])),
    }
}

/// After a reset of the controller it reports the system off while the host runs: no order was sent, and two checks
/// were evidence.
#[tokio::test]
async fn bug_a_system_that_reports_off_got_no_order() {
    each(&[
        ("it takes the order", Ok(Power::Off), 1, |line, _| {
            if line.starts_with("POST") { none(204) } else { ok(&system("Off")) }
        }),
        ("it refuses, and its chassis is on", Err("already off) and /redfish/v1/Chassis/1 says On"), 1, |line, _| {
            refuses(line, "On")
        }),
        ("it refuses, and its chassis is off", Ok(Power::Off), 1, |line, _| refuses(line, "Off")),
        ("it refuses, and its chassis is silent", Err("/redfish/v1/Chassis/1 says nothing"), 1, |line, _| {
            refuses(line, "")
        }),
        ("it refuses, and has no chassis", Err("no chassis says so"), 1, |line, _| {
            if line.starts_with("POST") { none(400) } else { ok(&system("Off")) }
        }),
        (
            "it does not offer it while it is off, and its chassis is on",
            Err("cannot ForceOff; it can On) and /redfish/v1/Chassis/1 says On"),
            0,
            |line, _| {
                let mut off = off_and_in(&[CHASSIS]);
                off["Actions"]["#ComputerSystem.Reset"]["ResetType@Redfish.AllowableValues"] = json!(["On"]);
                if line.ends_with("/Chassis/1") { ok(&json!({ "PowerState": "On" })) } else { ok(&off) }
            },
        ),
        (
            "it fails",
            Err("cannot be reached"),
            1,
            |line, _| if line.starts_with("POST") { none(0) } else { ok(&system("Off")) },
        ),
    ])
    .await;
}

/// The target of an order, its answer, and the allowed values.
const ORDERS: &[Row] = &[
    ("an order is moved to a path with a slash", Ok(Power::Off), 2, |line, requests| match line {
        line if line.starts_with("POST") && !line.ends_with("/") => {
            (308, "Location: /redfish/v1/Systems/1/Actions/ComputerSystem.Reset/\r\n", String::new())
        }
        line if line.starts_with("POST") => none(204),
        _ => ok(&machine(&requests[..requests.len().saturating_sub(1)])),
    }),
    ("an order is moved twice", Err("leads in circles"), 2, |line, requests| match line {
        line if line.starts_with("POST") && line.ends_with("/") => (307, "Location: /redfish/v1/x\r\n", String::new()),
        line if line.starts_with("POST") => (307, "Location: /redfish/v1/x/\r\n", String::new()),
        _ => ok(&machine(&requests[..0])),
    }),
    ("an order is moved to another host", Err("192.0.2.1"), 1, |line, _| match line {
        line if line.starts_with("POST") => (307, "Location: https://192.0.2.1/redfish/v1/x\r\n", String::new()),
        _ => ok(&system("On")),
    }),
    ("what was told is done, and its result is elsewhere", Ok(Power::Off), 1, |line, requests| match line {
        line if line.starts_with("POST") => (303, "Location: /redfish/v1/TaskService/Tasks/1\r\n", String::new()),
        _ => ok(&machine(requests)),
    }),
    ("a task", Ok(Power::Off), 1, |line, requests| match line {
        line if line.starts_with("POST") => {
            let task = json!({ "@odata.type": "#Task.v1_4_0.Task", "TaskState": "Running" });
            (202, "Location: /redfish/v1/TaskService/TaskMonitors/1\r\n", task.to_string())
        }
        _ => ok(&machine(requests)),
    }),
    ("a success in words", Ok(Power::Off), 1, |line, requests| match line {
        line if line.starts_with("POST") => {
            (200, "", json!({ "error": { "code": "Base.1.8.Success", "message": "ok" } }).to_string())
        }
        _ => ok(&machine(requests)),
    }),
    ("no values are listed", Ok(Power::Off), 1, |line, requests| {
        with(line, requests, |reset| drop(reset.remove(ALLOWED)))
    }),
    ("an empty list of values", Ok(Power::Off), 1, |line, requests| {
        with(line, requests, |reset| drop(reset.insert(ALLOWED.into(), json!([]))))
    }),
    ("values that are null", Ok(Power::Off), 1, |line, requests| {
        with(line, requests, |reset| drop(reset.insert(ALLOWED.into(), Json::Null)))
    }),
    ("values among which is null", Ok(Power::Off), 1, |line, requests| {
        with(line, requests, |reset| drop(reset.insert(ALLOWED.into(), json!([null, "ForceOff"]))))
    }),
    ("values that stand nowhere", Ok(Power::Off), 1, |line, requests| match line.ends_with("/Info") {
        true => none(404),
        false => with(line, requests, |reset| {
            drop(reset.remove(ALLOWED));
            drop(reset.insert("@Redfish.ActionInfo".into(), json!("/redfish/v1/Info")));
        }),
    }),
    ("a target with its host", Err("no target below /redfish/v1/"), 0, |line, requests| {
        match was_ordered(requests) || line.starts_with("POST") {
            true => with(line, requests, |_| {}),
            false => with(line, requests, |reset| {
                drop(reset.insert("target".into(), json!("https://192.0.2.1/redfish/v1/x")))
            }),
        }
    }),
    ("no actions", Err("no action ComputerSystem.Reset"), 0, |_, _| {
        ok(&json!({ "PowerState": "On", "Actions": null }))
    }),
    ("actions that are a list", Err("no action ComputerSystem.Reset"), 0, |_, _| {
        ok(&json!({ "PowerState": "On", "Actions": [] }))
    }),
    ("it closes a connection that it kept", Ok(Power::Off), 1, |line, requests| match requests.len() {
        2 => none(0),
        _ if line.starts_with("POST") => none(204),
        _ => ok(&machine(requests)),
    }),
    ("it reads nothing", Err("204 No Content: an empty answer"), 0, |_, _| none(204)),
    ("it says nothing", Err("200 OK: an empty answer"), 0, |_, _| (200, "", "  ".to_owned())),
    ("too many requests", Err("429"), 0, |_, _| none(429)),
    ("a state that is no word", Err("no action"), 0, |line, _| {
        if line.starts_with("POST") { none(400) } else { ok(&json!({ "PowerState": 2 })) }
    }),
];

#[tokio::test]
async fn an_order_is_executed_by_services_of_every_kind() {
    each(ORDERS).await;
}

const ALLOWED: &str = "ResetType@Redfish.AllowableValues";

/// A machine that is switched, with another action.
fn with(line: &str, requests: &[String], change: fn(&mut serde_json::Map<String, Json>)) -> Reply {
    if line.starts_with("POST") {
        return none(204);
    }
    let mut machine = machine(requests);
    change(machine["Actions"]["#ComputerSystem.Reset"].as_object_mut().unwrap());
    ok(&machine)
}

/// A refusal was reported without its reason if the messages were not a list within `error`.
#[tokio::test]
async fn the_reason_of_a_refusal_is_read_from_every_form() {
    let message = || json!({ "MessageId": "iLO.2.14.Denied", "Message": "It is locked." });
    for (what, body, expected) in [
        (
            "a list",
            json!({ "error": { "message": "See below.", "@Message.ExtendedInfo": [message()] } }),
            "See below.; It is locked.",
        ),
        ("an object", json!({ "error": { "@Message.ExtendedInfo": message() } }), "It is locked."),
        ("beside it", json!({ "@Message.ExtendedInfo": [message(), message()] }), ": It is locked."),
        (
            "a number alone",
            json!({ "error": { "@Message.ExtendedInfo": [{ "MessageId": "iLO.2.14.Denied" }] } }),
            "iLO.2.14.Denied",
        ),
        ("a text", json!({ "error": "It is locked." }), "It is locked."),
        ("texts", json!({ "error": { "@Message.ExtendedInfo": ["It is locked."] } }), "It is locked."),
        ("nothing", json!({ "error": { "@Message.ExtendedInfo": [null, 3, {}] } }), "500 Internal Server Error"),
    ] {
        let text = body.to_string();
        let stub = Stub::new(move |_, _| (500, "", text.clone())).await;
        let error = stub.carry_out(&stub.order(Act::Look)).await.unwrap_err().to_string();
        assert!(error.contains(expected) && !error.ends_with([':', ' ']), "{what}: {error}");
        assert_eq!(error.matches("locked").count(), usize::from(expected.contains("locked")), "{what}: {error}");
    }
}

#[tokio::test]
async fn the_only_system_is_found_in_every_form_of_list() {
    let one = || json!({ "@odata.id": SYSTEM });
    let other = || json!({ "@odata.id": "/redfish/v1/Systems/2" });
    for (what, list, expected) in [
        ("one", json!({ "Members": [one()], "Members@odata.count": 1 }), Ok(())),
        ("without a count", json!({ "Members": [one()] }), Ok(())),
        ("twice the same", json!({ "Members": [one(), one()], "Members@odata.count": 2 }), Ok(())),
        ("the same with a slash", json!({ "Members": [one(), { "@odata.id": format!("{SYSTEM}/") }] }), Ok(())),
        ("one and null", json!({ "Members": [null, one(), {}], "Members@odata.count": 3 }), Ok(())),
        ("a count that is a text", json!({ "Members": [one()], "Members@odata.count": "1" }), Ok(())),
        ("two", json!({ "Members": [one(), other()] }), Err("2 systems")),
        (
            "one of two pages",
            json!({ "Members": [one()], "Members@odata.nextLink": "/redfish/v1/x?page=2" }),
            Err("than one system"),
        ),
        ("one of two by the count", json!({ "Members": [one()], "Members@odata.count": 2 }), Err("than one system")),
        ("null", json!({ "Members": null }), Err("0 systems")),
        ("none", json!({}), Err("0 systems")),
        (
            "of another host",
            json!({ "Members": [{ "@odata.id": "https://192.0.2.1/redfish/v1/Systems/1" }] }),
            Err("no path of this service"),
        ),
        ("no path", json!({ "Members": [{ "@odata.id": "Systems" }] }), Err("no path of this service")),
    ] {
        let stub = Stub::new(move |line, _| match line {
            line if line.ends_with("/Systems") => ok(&list),
            line if line.contains("/Systems/1") => ok(&system("On")),
            _ => none(404),
        })
        .await;
        let mut order = stub.order(Act::Look);
        order.parameters.remove("system");
        let answer = stub.carry_out(&order).await;
        match (expected, &answer) {
            (Ok(()), Ok(answer)) => assert_eq!(answer.power, Power::On, "{what}"),
            (Err(message), Err(error)) => {
                assert!(error.to_string().contains(message), "{what}: {error}")
            }
            _ => panic!("{what}: {answer:?}"),
        }
    }
}

/// A service that answers a login like this, and then reports the machine on.
async fn session(login: Reply) -> (Result<Answer, DeviceError>, Vec<String>) {
    let stub = Stub::new(move |line, _| match line {
        line if line.starts_with("POST") => login.clone(),
        line if line.starts_with("DELETE") => none(204),
        _ => ok(&system("On")),
    })
    .await;
    let mut order = stub.order(Act::Look);
    order.parameters.insert("auth".to_owned(), Value::Plain("session".to_owned()));
    let answer = stub.carry_out(&order).await;
    let requests = stub.requests.lock().iter().filter(|line| line.starts_with("DELETE")).cloned().collect();
    (answer, requests)
}

/// Sessions remained until none was left: the login had named the session by other means, or with another host.
#[tokio::test]
async fn bug_a_session_was_not_ended_if_only_the_body_or_another_host_named_it() {
    const ACCOUNT: &str = "X-Auth-Token: abc\r\nLocation: /redfish/v1/AccountService/Accounts/1\r\n";
    const ELSEWHERE: &str = "X-Auth-Token: abc\r\nLocation: http://10.0.0.1/redfish/v1/SessionService/Sessions/7\r\n";
    const SEVEN: &str = "/redfish/v1/SessionService/Sessions/7";
    let body = || json!({ "@odata.id": SEVEN }).to_string();
    for (what, headers, body, ended) in [
        ("a path", "X-Auth-Token: abc\r\nLocation: /redfish/v1/SessionService/Sessions/7\r\n", "{}".to_owned(), true),
        ("relative", "X-Auth-Token: abc\r\nLocation: Sessions/7\r\n", "{}".to_owned(), true),
        ("another host", ELSEWHERE, "{}".to_owned(), true),
        ("in the body", TOKEN, body(), true),
        ("in the body, and a Location that is none", ACCOUNT, body(), true),
        ("nowhere", TOKEN, String::new(), false),
        ("attack: an account", ACCOUNT, "{}".to_owned(), false),
    ] {
        let (answer, deleted) = session((201, headers, body)).await;
        assert_eq!(answer.map(|answer| answer.power), Ok(Power::On), "{what}");
        let expected: Vec<_> = ended.then(|| format!("DELETE {SEVEN}")).into_iter().collect();
        assert_eq!(deleted, expected, "{what}");
    }
}

/// The path of the sessions, and that of one, for a service that redirects its logins.
#[tokio::test]
async fn bug_a_login_that_was_redirected_to_a_path_with_a_slash_failed() {
    for status in [301, 302, 307, 308] {
        let stub = Stub::new(move |line, _| match line {
            "POST /redfish/v1/SessionService/Sessions" => {
                (status, "Location: /redfish/v1/SessionService/Sessions/\r\n", String::new())
            }
            line if line.starts_with("POST") => {
                (201, TOKEN, json!({ "@odata.id": "/redfish/v1/SessionService/Sessions/7" }).to_string())
            }
            line if line.starts_with("DELETE") => none(200),
            _ => ok(&system("On")),
        })
        .await;
        let mut order = stub.order(Act::Look);
        order.parameters.insert("auth".to_owned(), Value::Plain("session".to_owned()));
        assert_eq!(stub.carry_out(&order).await.unwrap().power, Power::On, "{status}");
        let requests = stub.requests.lock().clone();
        let login = "{\"Password\":\"s3cr'et:w\",\"UserName\":\"admin\"}";
        assert_eq!(requests[..2], [format!("POST {SESSIONS} {login}"), format!("POST {SESSIONS}/ {login}")]);
        assert_eq!(requests[3], format!("DELETE {SESSIONS}/7"));
    }
    let (answer, _) =
        session((308, "Location: https://192.0.2.1/redfish/v1/SessionService/Sessions/\r\n", String::new())).await;
    assert!(answer.unwrap_err().to_string().contains("192.0.2.1"), "the login goes to no other host");
}

/// What fails, and when, and which sessions are ended then.
#[tokio::test]
async fn bug_a_session_outlived_the_time_of_its_order() {
    fn login(line: &str, requests: &[String]) -> Option<Reply> {
        let logins = requests.iter().filter(|line| line.contains("Password")).count();
        let body = json!({ "@odata.id": format!("{SESSIONS}/{}", logins + 7) }).to_string();
        match line {
            line if line.starts_with("DELETE") => Some(none(204)),
            line if line.ends_with("/Sessions") => Some((201, TOKEN, body)),
            _ => None,
        }
    }
    let rows: [(&str, &str, &[&str], Script); 5] = [
        ("no answer", "within 3s", &["7"], |line, requests| login(line, requests).unwrap_or(none(NO_ANSWER))),
        ("the order fails", "500", &["7"], |line, requests| {
            let refused = if line.starts_with("POST") { none(500) } else { ok(&system("On")) };
            login(line, requests).unwrap_or(refused)
        }),
        ("it closes", "cannot be reached", &["7"], |line, requests| login(line, requests).unwrap_or(none(0))),
        ("it runs out", "", &["8", "7"], |line, requests| {
            let ran_out = requests.iter().filter(|line| line.contains("Password")).count() < 2;
            let answer = if ran_out {
                none(401)
            } else if line.starts_with("POST") {
                none(204)
            } else {
                ok(&machine(requests))
            };
            login(line, requests).unwrap_or(answer)
        }),
        ("it runs out again", "401", &["8", "7"], |line, requests| login(line, requests).unwrap_or(none(401))),
    ];
    for (what, expected, ended, script) in rows {
        let (answer, _, requests) = served(Act::Off, "session", script).await;
        match &answer {
            Ok(answer) => assert!(expected.is_empty() && answer.power == Power::Off, "{what}: {answer:?}"),
            Err(error) => {
                assert!(!expected.is_empty() && error.to_string().contains(expected), "{what}: {error}")
            }
        }
        let deleted: Vec<_> = requests.iter().filter_map(|line| line.strip_prefix("DELETE ")).collect();
        let expected: Vec<_> = ended.iter().map(|id| format!("{SESSIONS}/{id}")).collect();
        assert_eq!(deleted, expected, "{what}: {requests:?}");
        let logins = requests.iter().filter(|line| line.contains("Password")).count();
        assert_eq!(logins, ended.len(), "{what}: a login that is refused is not repeated");
    }
}
