//! Exit codes and output.

use pod_safety_transport::MAX_OUTPUT_BYTES;

use super::*;

async fn check_status(body: &str) -> Result<Power, DeviceError> {
    AgentFixture::new().agent(body).act(Act::Look).await.map(|answer| answer.power)
}

async fn failure(body: &str) -> DeviceError {
    let error = AgentFixture::new().agent(body).act(Act::Off).await.unwrap_err();
    assert!(!error.to_string().contains("ss$word"), "{error}");
    error
}

/// Python exits with 2 when it cannot read the script, a shell when it cannot parse it.
#[tokio::test]
async fn a_state_is_read_only_from_its_line_with_its_exit_code() {
    for (body, power) in [
        ("echo 'Status: ON'; exit 0", Power::On),
        ("echo 'Status: OFF'; exit 2", Power::Off),
        ("echo connected; echo '  Status: OFF '; exit 2", Power::Off),
    ] {
        assert_eq!(check_status(body).await, Ok(power), "{body}");
    }
    for body in [
        "exit 2",
        "echo 'cannot open file' >&2; exit 2",
        "echo 'Status: ON'; exit 2",
        "echo 'Status: OFF' >&2; exit 2",
        "echo 'bug: counted as off'; echo 'Status: OFFLINE'; exit 2",
        "echo 'bug: counted as off'; echo 'last Status: OFF at noon'; exit 2",
        "echo 'Status: OFF'; exit 0",
        "exit 7",
        "exit 1",
        "head -c 300 /dev/urandom; exit 2",
    ] {
        assert!(matches!(check_status(body).await, Err(DeviceError::Garbage { .. })), "{body}");
    }
}

/// The output and the exit codes of agents, their libraries and their programs: only one line is off, and only alone.
#[tokio::test]
async fn the_output_of_agents_is_off_only_with_the_exact_line() {
    const FAILS: [&str; 3] = ["Garbage", "Failed", "Unreachable"];
    for (what, body, read) in [
        ("in small letters", "echo 'status: off'; exit 2", Some(Power::Off)),
        ("with the line ends of another system", "printf 'Status: OFF\\r\\n'; exit 2", Some(Power::Off)),
        (
            "after a library's warnings",
            "echo 'DeprecationWarning: x' >&2; echo 'Status: OFF'; exit 2",
            Some(Power::Off),
        ),
        ("after lines of its own", "echo 'Connected'; echo; echo 'Status: OFF'; exit 2", Some(Power::Off)),
        ("twice", "echo 'Status: OFF'; echo 'Status: OFF'; exit 2", Some(Power::Off)),
        ("nothing but its code", "exit 0", Some(Power::On)),
        ("a usage that ends with 2", "echo 'usage: fence_test [-h]'; exit 2", None),
        ("both", "echo 'Status: OFF'; echo 'Status: ON'; exit 2", None),
        ("in colours", "printf '\\033[1mStatus: OFF\\033[0m\\n'; exit 2", None),
        ("with a mark of its encoding", "printf '\\357\\273\\277Status: OFF\\n'; exit 2", None),
        ("in UTF-16", "printf 'S\\000t\\000a\\000t\\000u\\000s\\000:\\000 \\000O\\000F\\000F\\000'; exit 2", None),
        ("a question", "echo 'Status: OFF?'; exit 2", None),
        ("with a plug before it", "echo 'plug 3 Status: OFF'; exit 2", None),
        ("and then a traceback", "echo 'Status: OFF'; echo 'Traceback (most recent call last):' >&2; exit 1", None),
        ("and then a signal", "echo 'Status: OFF'; kill -15 $$", None),
        ("without end", "yes 'Status: OFF' | head -c 3000000; exit 2", None),
        ("translated", "echo 'Estado: apagado'; exit 2", None),
        ("unknown", "echo 'Status: UNKNOWN'; exit 2", None),
        ("of a list", "echo '1,node-1,OFF'; exit 2", None),
    ] {
        match (read, check_status(body).await) {
            (Some(power), read) => assert_eq!(read, Ok(power), "{what}"),
            (None, Err(error)) => assert!(FAILS.contains(&error.category()), "{what}: {error}"),
            (None, Ok(power)) => panic!("{what}: {power:?}"),
        }
    }
}

/// `off` prints that the machine is off. Only a status check shows whether it is. An agent that read it as off, and sent
/// nothing, passed for one that had switched it.
#[tokio::test]
async fn bug_an_order_that_was_not_sent_passed_for_one_that_was() {
    for (act, line, power) in [
        (Act::Off, "Success: Powered OFF", Power::Unknown),
        (Act::Off, "Success: Already OFF", Power::Off),
        (Act::Off, "plug 3 Success: Already OFF", Power::Unknown),
        (Act::On, "Success: Already ON", Power::Unknown),
    ] {
        let answer = AgentFixture::new().agent(&format!("echo '{line}'; exit 0")).act(act).await.unwrap();
        assert_eq!((answer.power, answer.said.as_str()), (power, line), "{act:?}");
    }
}

#[tokio::test]
async fn failures_are_categorized_by_their_output() {
    let failed = async |words: &str| failure(&format!("echo '{words}' >&2; exit 1")).await.category();
    assert_eq!(failed("2026-11-22 ERROR: Unable to connect/login to fencing device").await, "Unreachable");
    assert_eq!(failed("HTTPSConnectionPool: [SSL: CERTIFICATE_VERIFY_FAILED] self-signed").await, "TlsNotTrusted");
    assert_eq!(failed("Failed: 401 Client Error: Unauthorized for url").await, "LoginDenied");
    assert_eq!(failed("Failed: Timed out waiting to power OFF").await, "Failed");
    for (output, class) in [
        ("Failed: AADSTS7000222: The provided client secret keys for app are expired", "CredentialsExpired"),
        ("invalid_grant: Token has been expired or revoked", "CredentialsExpired"),
        ("(RequestExpired) when calling DescribeInstances: Request has expired", "CredentialsExpired"),
        ("(RequestLimitExceeded) when calling DescribeInstances", "Throttled"),
        ("HttpError 429: Too Many Requests", "Throttled"),
        ("Failed: Incorrect Access Key or Secret Key.", "RequestRefused"),
        ("Failed: Incorrect Region.", "Unreachable"),
    ] {
        assert_eq!(failed(output).await, class, "{output}");
    }
    assert!(matches!(failure("kill -9 $$").await, DeviceError::Failed { .. }));
}

/// The milliseconds of the agents' log, a port or the name of an instance counted as a login that was refused.
#[tokio::test]
async fn bug_401_in_a_time_or_a_port_was_a_refused_login() {
    for (output, class) in [
        ("2026-11-22 20:06:10,401 ERROR: Failed: Timed out waiting to power OFF", "Failed"),
        ("HTTPSConnectionPool(host=10.0.8.7, port=64010): No route to host", "Unreachable"),
        ("2026-11-22 20:06:10,007 ERROR: Failed: VM 4012 is locked", "Failed"),
        ("ERROR: unexpected status code 401 from endpoint", "LoginDenied"),
        ("Failed: Remote returned 401 for request to https://vcenter.example.com/rest", "LoginDenied"),
    ] {
        assert_eq!(failure(&format!("echo '{output}' >&2; exit 1")).await.category(), class, "{output}");
    }
}

#[tokio::test]
async fn a_secret_in_the_output_of_an_agent_is_removed() {
    let error = failure("printf \"unknown option '%s'\" \"$(grep password $here/stdin)\" >&2; exit 1").await;
    assert!(error.to_string().contains("'password=[secret]'"), "{error}");
    let fixture = AgentFixture::new().agent("cat $here/stdin; exit 0");
    let answer = fixture.act(Act::On).await.unwrap();
    assert!(!answer.said.contains(SECRET) && answer.said.contains("password=[secret]"), "{}", answer.said);
}

#[tokio::test]
async fn the_end_of_a_long_output_is_kept() {
    let fixture = AgentFixture::new().agent("seq 1 5000; echo the end >&2; exit 0");
    let said = fixture.act(Act::Off).await.unwrap().said;
    assert!(said.len() <= MAX_OUTPUT_BYTES && said.starts_with('…') && said.ends_with("4999; 5000; the end"), "{said}");
}

#[tokio::test]
async fn invalid_metadata_is_refused() {
    for (text, why) in [
        ("echo garbage; exit 0", "is not XML"),
        ("exit 0", "is not XML"),
        ("echo '<html/>'; exit 0", "does not describe a fence agent"),
        ("echo \"ModuleNotFoundError: No module named 'suds'\" >&2; exit 1", "No module named"),
    ] {
        let error = AgentFixture::new().raw(text).act(Act::Look).await.unwrap_err();
        assert!(matches!(error, DeviceError::Metadata { .. }) && error.to_string().contains(why), "{error}");
    }
}
