//! Jobs on lost nodes, with the real Job controller: a pod is replaced when evidence shows that it has terminated, not before, and that
//! does not count as a retry of the Job.

mod job_sets;
mod kueue;
mod queues;

use k8s_openapi::api::batch::v1::Job;

use super::*;

/// A node whose machine can be switched off, and one whose machine cannot.
const SWITCHED: &str = "switched";
const UNSWITCHED: &str = "nobody";

struct Fixture {
    plane: ControlPlane,
    _pod_safety: PodSafety,
    switched: Arc<Machine>,
    unswitched: Arc<Machine>,
    _components: [Component; 2],
    _kubelets: JoinSet<()>,
    /// Owns the files of the power switches.
    _rigs: Rigs,
}

/// As in docs/batch.md: one pod at a time, and a disruption is no failure. One failure would end the Job.
fn job(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "namespace": NAMESPACE, "name": name },
        "spec": {
            "backoffLimit": 0, "podReplacementPolicy": "Failed",
            "podFailurePolicy": { "rules": [
                { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] },
            ] },
            "template": { "spec": {
                "restartPolicy": "Never",
                "containers": [{ "name": "main", "image": "registry.example/main:1" }],
                "tolerations": workloads::brief_tolerations(),
                "affinity": workloads::affinity_to(node),
            } },
        },
    })
}

async fn fixture() -> Fixture {
    let rigs = Rigs::new().await.unwrap();
    let (plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    plane.namespace(NAMESPACE).await.unwrap();
    let switched = switch_log(&plane, &rigs, SWITCHED).await;
    let nobody = Machine::new(UNSWITCHED, || true);
    let kubelets = kubelets(&plane, spare_machines().iter().chain([&switched, &nobody]));
    let (components, pod_safety) = leader_beside(&plane, &kubeconfig, "job-controller", &rigs).await;
    Fixture {
        plane,
        _pod_safety: pod_safety,
        switched,
        unswitched: nobody,
        _components: components,
        _kubelets: kubelets,
        _rigs: rigs,
    }
}

impl Fixture {
    /// From now on nodes with pods of Jobs are fenced.
    async fn fences(&self) {
        let mut needed = policy(SWITCHED, SWITCHED, SWITCHED);
        needed["spec"]["neededByKinds"] = json!(["Job"]);
        apply(&self.plane, &needed).await;
    }

    /// All existing pods of a Job, including terminating ones.
    async fn pods(&self, job: &str) -> Vec<Pod> {
        let of_it = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
        Api::<Pod>::namespaced(self.plane.admin(), NAMESPACE).list(&of_it).await.unwrap().items
    }

    async fn job(&self, name: &str) -> Job {
        Api::<Job>::namespaced(self.plane.admin(), NAMESPACE).get(name).await.unwrap()
    }

    /// The UID of its only pod, which runs on a matching node.
    async fn until_runs(&self, name: &str, fits: impl Fn(&str) -> bool) -> String {
        wait_until(&format!("the pod of {name} runs where it should"), async || {
            let pods = self.pods(name).await;
            let running = pods.iter().filter_map(observe::is_running).find(|(node, _)| fits(node));
            running
                .map(|(_, uid)| uid)
                .ok_or_else(|| format!("{:?}", pods.iter().map(|pod| (&pod.spec, &pod.status)).collect::<Vec<_>>()))
        })
        .await
    }

    async fn until_terminates(&self, name: &str) {
        wait_until(&format!("the pod of {name} was deleted"), async || {
            let pods = self.pods(name).await;
            check_that(pods.iter().any(|pod| pod.metadata.deletion_timestamp.is_some()), format!("{}", pods.len()))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_pod_on_a_lost_node_is_replaced_by_evidence_without_counting_a_retry() {
    let fixture = fixture().await;
    fixture.fences().await;
    for (name, node) in [("train", SWITCHED), ("stuck", UNSWITCHED)] {
        apply(&fixture.plane, &job(name, node)).await;
    }
    let first = fixture.until_runs("train", |node| node == SWITCHED).await;
    let stuck = fixture.until_runs("stuck", |node| node == UNSWITCHED).await;
    fixture.switched.cut_off().await;
    fixture.unswitched.cut_off().await;
    wait_until("its node is proved off, and until then there is no second pod", async || {
        let proofs = fixture.plane.list("fenceevidences").await.unwrap();
        let pods = fixture.pods("train").await;
        let proved = proofs.iter().any(|proof| proof["spec"]["node"]["name"] == SWITCHED);
        assert!(proved || (pods.len() == 1 && pods[0].metadata.uid.as_ref() == Some(&first)), "{pods:?}");
        check_that(proved, format!("{proofs:?}"))
    })
    .await;
    let second = fixture.until_runs("train", |node| node != SWITCHED).await;
    assert_ne!(first, second);
    let status = fixture.job("train").await.status.unwrap();
    assert_eq!((status.failed.unwrap_or(0), status.active), (0, Some(1)), "{status:?}");
    assert_eq!(status.conditions.unwrap_or_default(), [], "one failure would have ended it");
    until_phase(&fixture.plane, SWITCHED, "Done").await;

    // Without evidence it waits: the pod may still run.
    fixture.until_terminates("stuck").await;
    let pods = fixture.pods("stuck").await;
    assert_eq!(pods.len(), 1, "no second one beside it");
    assert_eq!(pods[0].metadata.uid.as_ref(), Some(&stuck));
    let status = fixture.job("stuck").await.status.unwrap();
    assert_eq!((status.failed.unwrap_or(0), status.terminating), (0, Some(1)), "{status:?}");
}
