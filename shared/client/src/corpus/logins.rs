//! Credentials that expire, or are refused, while a command runs.

use std::time::Duration;

use super::*;

/// A login command that records its runs, and prints the token `tN` in run N.
const NOTES: &str = "file login.sh
| #!/bin/sh
| echo >> {here}/runs
| n=$(wc -l < {here}/runs)
";

/// A row whose user logs in by this command.
fn logs_in(server: &str, gives: &str) -> Row {
    let text = format!(
        "# login\ncluster server: https://127.0.0.1:{{{server}}}\ncluster certificate-authority: {{pki}}/ca.crt\nuser exec:\n\
         user   apiVersion: client.authentication.k8s.io/v1\nuser   command: ./login.sh\nuser   interactiveMode: Never\n{NOTES}{gives}"
    );
    Row::all(&text).remove(0)
}

fn gives_token(more: &str) -> String {
    format!(
        "| printf '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":{{\"token\":\"t%s\"{more}}}}}' \"$n\"\n"
    )
}

fn runs(fixture: &Fixture<'_>) -> usize {
    std::fs::read_to_string(fixture.folder.path().join("runs")).unwrap_or_default().lines().count()
}

fn tokens(stubs: &Stubs) -> Vec<String> {
    let token = |line: String| line.rsplit_once("authorization=Bearer ").map(|(_, token)| token.to_owned());
    stubs.seen().into_iter().filter_map(token).collect()
}

#[tokio::test]
async fn bug_a_login_command_ran_three_times_for_one_command() {
    let env = Env::real(1);
    let stubs = Stubs::start(&env).await;
    const ENDED: &str = r#","expirationTimestamp":"2020-01-01T00:00:00Z""#;
    const LASTS: &str = r#","expirationTimestamp":"2200-01-01T00:00:00Z""#;
    for (server, more, sent) in [
        ("api", "", &["t1", "t1", "t1"] as &[_]),
        ("api", LASTS, &["t1", "t1", "t1"]),
        // Expired credentials are never sent: a command that prints only such credentials runs for each request.
        ("api", ENDED, &["t2", "t3", "t4"]),
        // After a refusal the command runs once more, and the same request is sent again.
        ("api-401-once", LASTS, &["t1", "t2", "t2", "t2"]),
    ] {
        let fixture = Fixture::for_row(&logs_in(server, &gives_token(more)), &stubs);
        let connection = fixture.open().await.unwrap();
        // A feed with its own runtime shares the credentials.
        for connection in [connection.clone(), connection.isolated(), connection] {
            connection.send(Call::get("/version")).await.unwrap();
        }
        assert_eq!(tokens(&stubs), sent, "{server} {more}");
        let last: usize = sent.last().unwrap()[1..].parse().unwrap();
        assert_eq!(runs(&fixture), last, "{server} {more}");
    }
}

#[tokio::test]
async fn concurrent_requests_share_one_run_of_the_login_command() {
    let env = Env::real(1);
    let stubs = Stubs::start(&env).await;
    let fixture = Fixture::for_row(&logs_in("api-401-once", &gives_token("")), &stubs);
    let connection = fixture.open().await.unwrap();
    let all = (0..8).map(|_| connection.send(Call::get("/version")));
    let answers = futures::future::join_all(all).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(runs(&fixture), 2, "one is refused, and one login follows");
}

/// A login by browser takes longer than a request may.
#[tokio::test]
async fn a_login_command_is_not_ended_by_a_request_deadline() {
    let env = Env::real(1);
    let stubs = Stubs::start(&env).await;
    let row = logs_in("api", &format!("| sleep 0.3\n{}", gives_token("")));
    let mut fixture = Fixture::for_row(&row, &stubs);
    fixture.within = Some(Duration::from_millis(100));
    let connection = fixture.open().await.unwrap();
    connection.send(Call::get("/version")).await.unwrap();
    assert_eq!((tokens(&stubs), runs(&fixture)), (vec!["t1".to_owned()], 1));
}

#[tokio::test]
async fn no_connection_uses_an_old_client_certificate() {
    let env = Env::real(1);
    let stubs = Stubs::start(&env).await;
    let gives = "| [ \"$n\" = 1 ] && who=p256 || who=p384\n| j() { awk '{printf \"%s\\\\n\", $0}' \"{pki}/$1\"; }\n\
                 | printf '{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":{\"clientCertificateData\":\"%s\",\"clientKeyData\":\"%s\"}}' \"$(j $who.crt)\" \"$(j $who.key)\"\n";
    let fixture = Fixture::for_row(&logs_in("api-401-once", gives), &stubs);
    let connection = fixture.open().await.unwrap();
    connection.send(Call::get("/version")).await.unwrap();
    assert_eq!(
        stubs.seen(),
        ["api-401-once: GET /version certificate=p256 of 1", "api-401-once: GET /version certificate=p384 of 1"]
    );
}

/// A process with such a kubeconfig was refused from the expiry of its first certificate until it was restarted.
#[tokio::test]
async fn bug_renewed_files_of_a_client_certificate_were_not_read() {
    let env = Env::real(1);
    let stubs = Stubs::start(&env).await;
    let text = "# files\ncluster server: https://127.0.0.1:{api-401-once}\ncluster certificate-authority: {pki}/ca.crt\n\
                user client-certificate: c.crt\nuser client-key: c.key\nfile c.crt\n| {text p256.crt}\nfile c.key\n| {text p256.key}\n";
    let fixture = Fixture::for_row(&Row::all(text).remove(0), &stubs);
    let connection = fixture.open().await.unwrap();
    for end in ["crt", "key"] {
        let to = fixture.folder.path().join(format!("c.{end}"));
        std::fs::copy(stubs::pki().join(format!("p384.{end}")), to).unwrap();
    }
    connection.send(Call::get("/version")).await.unwrap();
    let seen = ["p256", "p384"].map(|who| format!("api-401-once: GET /version certificate={who} of 1"));
    assert_eq!(stubs.seen(), seen);
}

#[tokio::test]
async fn a_token_file_is_read_again_after_a_401_and_its_token_is_kept_if_it_is_deleted() {
    let env = Env::real(1);
    let stubs = Stubs::start(&env).await;
    let text = "# file\ncluster server: https://127.0.0.1:{api-401-once}\ncluster certificate-authority: {pki}/ca.crt\nuser tokenFile: t\nfile t\n| old\n";
    let fixture = Fixture::for_row(&Row::all(text).remove(0), &stubs);
    let file = fixture.folder.path().join("t");
    let connection = fixture.open().await.unwrap();
    std::fs::write(&file, "new\n").unwrap();
    connection.send(Call::get("/version")).await.unwrap();
    std::fs::remove_file(&file).unwrap();
    connection.send(Call::get("/version")).await.unwrap();
    assert_eq!(tokens(&stubs), ["old", "new", "new"]);
}

/// As in Go, a certificate that is itself among the authorities is still checked.
#[tokio::test]
async fn a_given_server_certificate_is_refused_if_it_expired_or_has_another_name() {
    let env = Env::real(1);
    let stubs = Stubs::start(&env).await;
    for (name, why) in [("expired", "its certificate has expired"), ("elsewhere", "was not issued for this address")] {
        let server = format!("# given\ncluster server: https://127.0.0.1:{{api-{name}}}\n");
        let text = format!("{server}cluster certificate-authority: {{pki}}/{name}.crt\n");
        let outcome = Fixture::for_row(&Row::all(&text).remove(0), &stubs).outcome().await;
        assert!(outcome.starts_with("refuses ") && outcome.contains(why), "{outcome}");
    }
}
