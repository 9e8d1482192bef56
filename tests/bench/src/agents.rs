//! Cost of the Leases of node agents on a real API server: each agent replaces its own Lease with the version of the previous round.
//! pod-safety does not watch these Leases, so only the API server and etcd are measured.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use pod_safety_agent::lease;
use pod_safety_control_plane::{ControlPlane, Options};
use pod_safety_watchdog::record::{Boot, Class, Device, Epoch, Record, State, Version, lease_name};
use tokio::task::JoinSet;

use crate::print_line;
use crate::results::{number, percentile};

const NAMESPACE: &str = "pod-safety";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/pod-safety/leases";
/// A real agent has its own connection. Here the agents share this many clients, because the clients are not measured.
const CLIENTS: usize = 16;
/// Time until all agents have started and the API server's caches are warm.
const WARM_UP_TIME: Duration = Duration::from_secs(5);

/// Measures what the Leases of node agents cost the API server and etcd.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Agents {
    /// How many agents, each number with each interval
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "500,1000,5000")]
    agents: Vec<usize>,

    /// From one grant to the next, in seconds (`--interval` of the agent)
    #[arg(long, value_name = "SECONDS", value_delimiter = ',', default_value = "2,5,10")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=200))]
    interval: Vec<u64>,

    /// For how long each is measured
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
}

/// Measures all combinations, and returns the table.
pub(crate) async fn run(plan: Agents) -> Result<String> {
    let mut table = HEAD.to_owned();
    for &agents in &plan.agents {
        for &interval in &plan.interval {
            print_line(&format!("{agents} agents, a grant each {interval} s"));
            let row = measure(agents, Duration::from_secs(interval), Duration::from_secs(plan.seconds)).await?;
            writeln!(table, "{}", row.line(agents, interval)).context("writing the table")?;
        }
    }
    Ok(table)
}

const HEAD: &str = "\
| agents | a grant each | writes/s wanted | writes/s | p50 | p99 | late | kube-apiserver, cores | etcd, cores | CPU of both for a write |
|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
";

struct Row {
    seconds: f64,
    took: Vec<Duration>,
    late: usize,
    apiserver: f64,
    etcd: f64,
}

impl Row {
    fn line(&self, agents: usize, interval: u64) -> String {
        let expected = number(agents) / Duration::from_secs(interval).as_secs_f64();
        let writes = number(self.took.len());
        let at = |percent| percentile(&self.took, 0, percent).unwrap_or_default();
        format!(
            "| {agents} | {interval} s | {expected:.0} | {:.0} | {:.1} ms | {:.1} ms | {} | {:.2} | {:.2} | {:.0} us |",
            writes / self.seconds,
            at(50),
            at(99),
            self.late,
            self.apiserver / self.seconds,
            self.etcd / self.seconds,
            (self.apiserver + self.etcd) / writes.max(1.0) * 1e6,
        )
    }
}

/// Each measurement has its own control plane, so that none is affected by the history of another.
async fn measure(agents: usize, interval: Duration, length: Duration) -> Result<Row> {
    let mut plane = ControlPlane::start(Options { measured: true, ..Options::default() }).await?;
    plane.kubectl(&["create", "namespace", NAMESPACE]).await?.text()?;
    let clients: Vec<Client> = (0..CLIENTS).map(|_| plane.admin()).collect();
    let (ends, late) = (Arc::new(tokio::sync::watch::Sender::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for at in 0..agents {
        let begins = interval.mul_f64(number(at) / number(agents));
        let client = clients[at % CLIENTS].clone();
        tasks.spawn(grants(client, at, (begins, interval), ends.subscribe(), Arc::clone(&late)));
    }
    tokio::time::sleep(interval + WARM_UP_TIME).await;
    late.store(0, Ordering::Relaxed);
    let (began, before) = (Instant::now(), usage(&mut plane)?);
    tokio::time::sleep(length).await;
    let (seconds, after) = (began.elapsed().as_secs_f64(), usage(&mut plane)?);
    ends.send_replace(true);
    let mut took = Vec::new();
    while let Some(agent) = tasks.join_next().await {
        took.extend(agent??.into_iter().filter(|(at, _)| (began..began + length).contains(at)).map(|(_, took)| took));
    }
    took.sort_unstable();
    let late = late.load(Ordering::Relaxed);
    Ok(Row { seconds, took, late, apiserver: after.0 - before.0, etcd: after.1 - before.1 })
}

/// The CPU time that the API server and etcd have used so far.
fn usage(plane: &mut ControlPlane) -> Result<(f64, f64)> {
    let apiserver = plane.apiserver().context("the API server has ended")?.cpu_seconds()?;
    Ok((apiserver, plane.etcd_of(0).context("etcd has ended")?.cpu_seconds()?))
}

/// One agent until its end: when each write was sent, and how long it took.
async fn grants(
    client: Client,
    at: usize,
    (begins, interval): (Duration, Duration),
    mut ends: tokio::sync::watch::Receiver<bool>,
    late: Arc<AtomicUsize>,
) -> Result<Vec<(Instant, Duration)>> {
    let node = format!("node-{at}");
    let (mut record, mut version, mut writes) = (first(at), None, Vec::new());
    tokio::time::sleep(begins).await;
    while !*ends.borrow() {
        let sent = Instant::now();
        version = Some(write(&client, &node, &record, version.as_ref()).await?);
        record.round += 1;
        writes.push((sent, sent.elapsed()));
        let remaining = interval.saturating_sub(sent.elapsed());
        if remaining.is_zero() {
            late.fetch_add(1, Ordering::Relaxed);
        }
        // Like the agent: the next round is due one interval after this one was sent.
        let _ended = tokio::time::timeout(remaining, ends.changed()).await;
    }
    Ok(writes)
}

fn first(at: usize) -> Record {
    let device = Device {
        class: Class::Hardware,
        identity: "iTCO_wdt".into(),
        firmware: 6,
        kernel: "6.12.41+deb13-amd64".into(),
        timeout: Duration::from_secs(10),
        nowayout: true,
        pings_on_close: true,
    };
    let id = format!("{at:08x}-1b7e-4d51-9c6e-6d1f2a3b4c5d");
    Record {
        state: State::Armed,
        epoch: Epoch { process: 0x1234_5678_9abc_def0, count: 1 },
        round: 1,
        boot: Boot { node: id.as_str().into(), id: id.as_str().into() },
        device: Some(Arc::new(device)),
    }
}

/// The request of the agent, and the fields of the answer that it uses.
async fn write(client: &Client, node: &str, record: &Record, over: Option<&Version>) -> Result<Version> {
    let body = lease::encode((NAMESPACE, node), record, None, None, over);
    let (method, path) = match over {
        Some(_) => ("PUT", format!("{LEASES}/{}", lease_name(node))),
        None => ("POST", LEASES.to_owned()),
    };
    let request = http::Request::builder().method(method).uri(&path).header("content-type", "application/json");
    let answer = client.send(request.body(Body::from(body))?).await.with_context(|| format!("{method} {path}"))?;
    let status = answer.status();
    let bytes = answer.into_body().collect().await?.to_bytes();
    anyhow::ensure!(status.is_success(), "{method} {path}: {status}: {}", String::from_utf8_lossy(&bytes));
    lease::parse(&bytes).map(|seen| seen.version).map_err(anyhow::Error::msg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_writes_and_their_cost() {
        let took = (1..=100).map(Duration::from_millis).collect();
        let row = Row { seconds: 10.0, took, late: 3, apiserver: 5.0, etcd: 1.0 };
        let line = row.line(50, 5);
        assert_eq!(line, "| 50 | 5 s | 10 | 10 | 50.0 ms | 99.0 ms | 3 | 0.50 | 0.10 | 60000 us |");
        assert_eq!(line.matches('|').count(), HEAD.lines().next().unwrap().matches('|').count());
    }
}
