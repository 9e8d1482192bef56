//! The agent in a machine of its own, with the driver of a real watchdog. `POD_SAFETY_GUEST=FOLDER` says where `tests/watchdog/guest.sh` may
//! work, and `POD_SAFETY_AGENT` names a static program; without them nothing is tested here.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures::future::select;

use crate::server::Server;
use crate::{pause, token};

/// An API server that is away for six periods of the watchdog.
const AWAY: Duration = Duration::from_secs(60);
/// Three periods of ten seconds and a tick, and a second for the machine that is emulated.
const BOUND: Duration = Duration::from_secs(34);

struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        let _gone = self.0.kill();
    }
}

fn state(server: &Server) -> (String, u64, String) {
    let store = server.store.lock().unwrap();
    (store.says("state"), store.says("round").parse().unwrap_or_default(), store.says("epoch"))
}

async fn until(guest: &mut Guest, what: &str, is: impl Fn() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(guest.0.try_wait().unwrap().is_none(), "the machine was reset before: {what}");
        assert!(began.elapsed() < Duration::from_secs(120), "never: {what}");
        pause().await;
    }
}

async fn scenario(server: &Server, folder: &Path, agent: &str) {
    fs::create_dir_all(folder.join("account")).unwrap();
    fs::write(folder.join("account/token"), token()).unwrap();
    fs::write(folder.join("account/ca.crt"), &server.authority).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/watchdog/guest.sh");
    let mut command = Command::new(script);
    command.arg(folder).arg(agent).arg(server.address.port().to_string()).stdin(Stdio::piped());
    let mut guest = Guest(command.spawn().unwrap());
    until(&mut guest, "a second grant", || state(server).0 == "Armed" && state(server).1 > 1).await;
    let epoch = state(server).2;

    server.store.lock().unwrap().away = true;
    let began = Instant::now();
    until(&mut guest, "the end of the outage", || began.elapsed() > AWAY).await;
    server.store.lock().unwrap().away = false;
    until(&mut guest, "a grant of a new epoch", || state(server).2 != epoch && state(server).1 > 1).await;
    println!("an outage of {AWAY:?} reset nothing");

    guest.0.stdin.as_mut().unwrap().write_all(b"kill\n").unwrap();
    let began = Instant::now();
    while guest.0.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < Duration::from_secs(120), "it was never reset");
        pause().await;
    }
    let last = server.store.lock().unwrap().last.unwrap().elapsed();
    println!("reset {:.1} s after the last grant; the bound without drift and R is 33 s", last.as_secs_f64());
    assert!(last < BOUND, "{last:?}");
}

#[test]
fn a_real_watchdog_outlives_an_outage_and_resets_a_machine_without_its_agent() {
    let (Ok(folder), Ok(agent)) = (std::env::var("POD_SAFETY_GUEST"), std::env::var("POD_SAFETY_AGENT"))
    else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Server::start().await;
        let played = Box::pin(scenario(&server, Path::new(&folder), &agent));
        let _ended = select(Box::pin(server.serve()), played).await;
    });
}
