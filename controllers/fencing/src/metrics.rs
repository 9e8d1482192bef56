//! The number of incidents by phase, their durations, and the devices that do not answer.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use pod_safety_shared::api::{DeviceState, OFF_WHILE_REPORTING, PROBLEM_REASONS, Phase, Power};
use pod_safety_shared::cache::View;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::metrics::{MetricsError, registered};
use pod_safety_shared::model::Uid;
use prometheus::{Histogram, HistogramOpts, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// The metrics of fencing, in addition to those of the queue and of the reasons of holds (closed gates included).
#[derive(Debug)]
pub(super) struct FencingMetrics {
    incidents: IntGaugeVec,
    phases_reached: IntCounterVec,
    to_evidence: Histogram,
    unanswered: IntGauge,
    devices: IntGaugeVec,
    problems: IntGaugeVec,
    /// The phases that were counted, by node: decisions do not depend on them.
    phases: Mutex<BTreeMap<String, BTreeMap<Uid, Phase>>>,
}

impl FencingMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let gauge = |name: &str, help: &str, label: &str| {
            registered(registry, IntGaugeVec::new(Opts::new(name, help), &[label])?)
        };
        let reached = IntCounterVec::new(
            Opts::new("pod_safety_fence_phases_total", "Incidents that entered a phase."),
            &["phase"],
        )?;
        let to_evidence = Histogram::with_opts(
            HistogramOpts::new(
                "pod_safety_fence_time_to_evidence_seconds",
                "Time from the start of an incident until there was evidence.",
            )
            .buckets(vec![1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0]),
        )?;
        // The status of a FenceDevice shows which device it is: metrics name no objects.
        let unanswered = IntGauge::new(
            "pod_safety_fence_device_unreachable_targets",
            "Nodes whose power state a device could not report at the last status check, over all devices.",
        )?;
        let metrics = Self {
            incidents: gauge("pod_safety_fences", "Incidents of nodes by phase.", "phase")?,
            phases_reached: registered(registry, reached)?,
            to_evidence: registered(registry, to_evidence)?,
            unanswered: registered(registry, unanswered)?,
            devices: gauge("pod_safety_fence_devices", "Fence devices by state.", "state")?,
            problems: gauge(
                "pod_safety_fence_device_problems",
                "Nodes for which the last status check of a device found a problem, by problem.",
                "problem",
            )?,
            phases: Mutex::default(),
        };
        for problem in PROBLEM_REASONS {
            metrics.problems.with_label_values(&[problem]).set(0);
        }
        for state in DeviceState::ALL {
            metrics.devices.with_label_values(&[state.name()]).set(0);
        }
        for phase in Phase::ALL {
            metrics.incidents.with_label_values(&[phase.name()]).set(0);
            metrics.phases_reached.with_label_values(&[phase.name()]).inc_by(0);
        }
        Ok(metrics)
    }

    /// Refreshes the numbers of incidents by phase and of devices by state; drops incidents that were deleted.
    pub(super) fn refresh(&self, view: &View<'_>) {
        self.count_phases(view);
        let existing: BTreeSet<&str> = view.node_fences().map(|fence| fence.spec.node.name.as_str()).collect();
        self.phases.lock().retain(|node, _| existing.contains(&**node));
        self.refresh_devices(view);
    }

    fn count_phases(&self, view: &View<'_>) {
        let mut counts: BTreeMap<Phase, i64> = BTreeMap::new();
        view.node_fences().for_each(|fence| *counts.entry(fence.status.phase).or_default() += 1);
        for phase in Phase::ALL {
            let count = counts.get(phase).copied().unwrap_or_default();
            self.incidents.with_label_values(&[phase.name()]).set(count);
        }
    }

    /// The incidents of this node were decided.
    pub(super) fn record_progress(&self, node: &str, view: &View<'_>, now: Mono) {
        let now_seen: BTreeMap<Uid, Phase> =
            view.node_fences_of(node).map(|fence| (fence.uid.clone(), fence.status.phase)).collect();
        let mut seen = self.phases.lock();
        let before_seen =
            if now_seen.is_empty() { seen.remove(node) } else { seen.insert(node.to_owned(), now_seen.clone()) };
        drop(seen);
        let before_seen = before_seen.unwrap_or_default();
        // A deleted incident is a change, too.
        let is_changed = now_seen != before_seen;
        for fence in view.node_fences_of(node) {
            let phase = fence.status.phase;
            let before = before_seen.get(&fence.uid).copied();
            if before == Some(phase) {
                continue;
            }
            // For a status that this process did not see change, the time of the change is unknown.
            if before.is_some() || fence.first_seen == fence.status_seen && phase == Phase::Pending {
                self.phases_reached.with_label_values(&[phase.name()]).inc();
            }
            if before.is_some() && phase == Phase::Fenced {
                self.to_evidence.observe(now.since(fence.first_seen).as_secs_f64());
            }
        }
        if is_changed {
            self.count_phases(view);
        }
    }

    fn refresh_devices(&self, view: &View<'_>) {
        let mut counts: Vec<_> = DeviceState::ALL.iter().map(|state| (state, 0_i64)).collect();
        let mut unanswered = 0_i64;
        let mut problems = PROBLEM_REASONS.map(|problem| (problem, 0_i64));
        for device in view.devices() {
            let state = device.state();
            counts.iter_mut().filter(|(key, _)| **key == state).for_each(|(_, count)| *count += 1);
            // An off that the kubelet contradicts is no report of the power state.
            let is_unanswered = |problem: &str, power| power == Power::Unknown || problem == OFF_WHILE_REPORTING;
            let targets = device.status.targets.iter();
            let unreachable = targets.filter(|target| is_unanswered(&target.problem, target.power));
            unanswered += unreachable.map(|_| 1).sum::<i64>();
            for target in &device.status.targets {
                let same = problems.iter_mut().filter(|(problem, _)| *problem == target.problem);
                same.for_each(|(_, count)| *count += 1);
            }
        }
        for (problem, count) in problems {
            self.problems.with_label_values(&[problem]).set(count);
        }
        for (state, count) in counts {
            self.devices.with_label_values(&[state.name()]).set(count);
        }
        self.unanswered.set(unanswered);
    }
}
