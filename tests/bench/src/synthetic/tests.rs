//! Compares the synthetic API server with a real one.

use std::time::Duration;

use kube::Client;
use pod_safety_control_plane::{ControlPlane, Options};

use super::messages::{self, END};
use super::renewals::RenewalSchedule;
use super::template::{content, fields};
use super::world::{Kind, Rendered, Size, World};

const SIZE: Size = Size { nodes: 23, pods: 101, seed: 1, lost: 0 };

async fn real(client: &Client, path: &str) -> Vec<u8> {
    let request = hyper::Request::get(path).header("Accept", "application/vnd.kubernetes.protobuf");
    let answer = client.send(request.body(kube::client::Body::empty()).unwrap()).await.unwrap();
    answer.into_body().collect_bytes().await.unwrap().to_vec()
}

/// The content at this path, for each field that matches.
fn at<'a>(message: &'a [u8], path: &[usize]) -> Vec<&'a [u8]> {
    let Some((first, rest)) = path.split_first() else { return vec![message] };
    let fields = fields(message).filter(|field| field.number == *first);
    fields.filter_map(|field| field.content).flat_map(|content| at(content, rest)).collect()
}

#[tokio::test]
async fn objects_equal_those_of_a_real_api_server_in_size_and_content() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let [nodes, pods] = [SIZE.nodes, SIZE.pods].map(|count| count.to_string());
    plane.loader(&["-nodes", &nodes, "-pods", &pods]).await.unwrap();
    let world = World::new(SIZE, RenewalSchedule::new(SIZE.nodes, 0, Duration::ZERO), false).unwrap();
    for (kind, path) in [
        (Kind::Pods, "/api/v1/namespaces/load/pods"),
        (Kind::Nodes, "/api/v1/nodes"),
        (Kind::Leases, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"),
    ] {
        let answer = real(&plane.admin(), path).await;
        let list = content(&answer[4..], 2).unwrap();
        let items = at(list, &[2]);
        assert_eq!(items.len(), world.count(kind));
        for item in &items {
            let name = String::from_utf8(at(item, &[1, 1])[0].to_vec()).unwrap();
            let number = name.rsplit('-').next().unwrap().parse().unwrap();
            let mut made = Rendered::default();
            world.make(kind, number, 0, &mut made);
            world.take_what_chance_decides(kind, item, &mut made);
            let mut synthetic = Vec::new();
            world.template(kind, number).write(&made, &mut synthetic);
            assert_eq!(synthetic.len(), item.len(), "{name}");
            for path in World::paths(kind) {
                assert_eq!(at(&synthetic, path), at(item, path), "{name} at {path:?}");
            }
        }
        let version = String::from_utf8(at(list, &[1, 2])[0].to_vec()).unwrap().parse().unwrap();
        let sizes = items.iter().map(|item| messages::item_size(item.len()));
        let head = messages::list(kind, version, "", sizes.sum());
        assert_eq!(answer[..head.len()], head);
        assert!(answer.ends_with(END));
    }
}
