// A node without containers: the kubelet's own code, as in kubemark, beside a container runtime that only keeps state.
//
//	hollow-kubelet runtime FOLDER             the runtime, which outlives its kubelet
//	hollow-kubelet kubelet FOLDER NODE BOOT   the kubelet, with the kubeconfig of FOLDER
//
// The runtime appends a line to FOLDER/journal when a process starts and when it ends: `start|end CONTAINER NAMESPACE/POD UID
// NANOSECONDS`. FOLDER/faults holds one fault a line, `OPERATION SECONDS`: that operation (start, stop, remove, sandbox, pull)
// takes so much longer. As with containerd, what has begun goes on when its caller is gone.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	remote "k8s.io/cri-client/pkg"
	"k8s.io/cri-client/pkg/fake"
	"k8s.io/cri-client/pkg/util"
	"k8s.io/klog/v2"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubemark"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "runtime":
		err = serve(os.Args[2])
	case len(os.Args) == 5 && os.Args[1] == "kubelet":
		err = kubelet(os.Args[2], os.Args[3], os.Args[4])
	default:
		err = fmt.Errorf("usage: hollow-kubelet runtime FOLDER | kubelet FOLDER NODE BOOT")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func socket(folder string) string { return "unix://" + filepath.Join(folder, "cri.sock") }

// runtime adds processes, faults and the journal to the runtime of cri-client's tests.
type runtime struct {
	*fake.RemoteRuntime
	folder string
	// One line at a time, and a container starts or ends once.
	mutex   sync.Mutex
	journal *os.File
}

func serve(folder string) error {
	journal, err := os.OpenFile(filepath.Join(folder, "journal"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	r := &runtime{RemoteRuntime: fake.NewFakeRemoteRuntime(), folder: folder, journal: journal}
	r.RuntimeService.FakeStatus = &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
		{Type: cri.RuntimeReady, Status: true}, {Type: cri.NetworkReady, Status: true},
	}}
	r.ImageService.SetFakeImageSize(1 << 20) // a kubelet accepts no image without a size
	listener, err := util.CreateListener(socket(folder))
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, r)
	cri.RegisterImageServiceServer(server, r)
	return server.Serve(listener)
}

// delay waits as long as the faults say, whatever becomes of the caller.
func (r *runtime) delay(operation string) {
	text, err := os.ReadFile(filepath.Join(r.folder, "faults"))
	if err != nil {
		return // no file: no fault
	}
	for _, line := range strings.Split(string(text), "\n") {
		if name, seconds, ok := strings.Cut(line, " "); ok && name == operation {
			if n, err := strconv.Atoi(seconds); err == nil {
				time.Sleep(time.Duration(n) * time.Second)
			}
		}
	}
}

// record writes a line about a container whose lock the caller holds.
func (r *runtime) record(what, id string) {
	c := r.RuntimeService.Containers[id]
	labels := c.Labels
	fmt.Fprintf(r.journal, "%s %s %s/%s %s %d\n", what, labels["io.kubernetes.container.name"], labels["io.kubernetes.pod.namespace"],
		labels["io.kubernetes.pod.name"], labels["io.kubernetes.pod.uid"], time.Now().UnixNano())
}

func (r *runtime) start(id string) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.RuntimeService.Lock()
	defer r.RuntimeService.Unlock()
	c, ok := r.RuntimeService.Containers[id]
	if !ok {
		return fmt.Errorf("container %s not found", id)
	}
	if s, ok := r.RuntimeService.Sandboxes[c.SandboxID]; !ok || s.State != cri.PodSandboxState_SANDBOX_READY {
		return fmt.Errorf("the sandbox of container %s is not ready", id)
	}
	if c.State != cri.ContainerState_CONTAINER_CREATED {
		return fmt.Errorf("container %s is not in the state created", id)
	}
	r.record("start", id)
	c.State, c.StartedAt = cri.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	return nil
}

func (r *runtime) end(matches func(id, sandbox string) bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.RuntimeService.Lock()
	defer r.RuntimeService.Unlock()
	for id, c := range r.RuntimeService.Containers {
		if !matches(id, c.SandboxID) {
			continue
		}
		if c.State == cri.ContainerState_CONTAINER_RUNNING {
			r.record("end", id)
		}
		if c.State != cri.ContainerState_CONTAINER_EXITED {
			c.State, c.FinishedAt = cri.ContainerState_CONTAINER_EXITED, time.Now().UnixNano()
		}
	}
}

func (r *runtime) RunPodSandbox(_ context.Context, req *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	r.delay("sandbox")
	return r.RemoteRuntime.RunPodSandbox(context.Background(), req)
}

func (r *runtime) PullImage(_ context.Context, req *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	r.delay("pull")
	return r.RemoteRuntime.PullImage(context.Background(), req)
}

func (r *runtime) StartContainer(_ context.Context, req *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	r.delay("start")
	return &cri.StartContainerResponse{}, r.start(req.ContainerId)
}

// A process ignores SIGTERM: it ends with its grace period.
func (r *runtime) StopContainer(_ context.Context, req *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	r.delay("stop")
	time.Sleep(time.Duration(req.Timeout) * time.Second)
	r.end(func(id, _ string) bool { return id == req.ContainerId })
	return &cri.StopContainerResponse{}, nil
}

func (r *runtime) RemoveContainer(_ context.Context, req *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	r.delay("remove")
	r.end(func(id, _ string) bool { return id == req.ContainerId })
	return r.RemoteRuntime.RemoveContainer(context.Background(), req)
}

func (r *runtime) StopPodSandbox(_ context.Context, req *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	r.end(func(_, sandbox string) bool { return sandbox == req.PodSandboxId })
	r.RuntimeService.Lock()
	defer r.RuntimeService.Unlock()
	if s, ok := r.RuntimeService.Sandboxes[req.PodSandboxId]; ok {
		s.State = cri.PodSandboxState_SANDBOX_NOTREADY
	}
	return &cri.StopPodSandboxResponse{}, nil
}

func (r *runtime) RemovePodSandbox(_ context.Context, req *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	r.delay("remove")
	r.end(func(_, sandbox string) bool { return sandbox == req.PodSandboxId })
	return r.RemoteRuntime.RemovePodSandbox(context.Background(), req)
}

// A hook `sleep N` takes N seconds.
func (r *runtime) ExecSync(_ context.Context, req *cri.ExecSyncRequest) (*cri.ExecSyncResponse, error) {
	if len(req.Cmd) == 2 && req.Cmd[0] == "sleep" {
		seconds, err := strconv.Atoi(req.Cmd[1])
		if err != nil {
			return nil, err
		}
		time.Sleep(time.Duration(seconds) * time.Second)
	}
	return &cri.ExecSyncResponse{}, nil
}

// machine tells one boot from another.
type machine struct {
	cadvisortest.Fake
	boot string
}

func (m *machine) MachineInfo(logger klog.Logger) (*cadvisorapi.MachineInfo, error) {
	info, err := m.Fake.MachineInfo(logger)
	if err != nil {
		return nil, err
	}
	info.BootID, info.SystemUUID, info.MachineID = m.boot, m.NodeName, m.NodeName
	return info, nil
}

func kubelet(folder, node, boot string) error {
	ctx := context.Background()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(folder, "kubeconfig"))
	if err != nil {
		return err
	}
	config.ContentType, config.QPS, config.Burst = "application/vnd.kubernetes.protobuf", 50, 100 // a kubelet's defaults
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	flags, settings := kubemark.GetHollowKubeletConfig(&kubemark.HollowKubeletOptions{
		NodeName: node, MaxPods: 110, RegisterWithTaints: []v1.Taint{},
	})
	flags.RootDirectory = filepath.Join(folder, "root") // a kubelet that starts again finds what the last one kept
	settings.EnableServer = false
	// As a kubelet has them.
	settings.SyncFrequency.Duration = time.Minute
	settings.NodeLeaseDurationSeconds = 12
	settings.FileCheckFrequency.Duration = 20 * time.Second

	heartbeats := *config
	heartbeats.Timeout, heartbeats.QPS = settings.NodeStatusUpdateFrequency.Duration, -1
	heartbeat, err := clientset.NewForConfig(&heartbeats)
	if err != nil {
		return err
	}
	runtimeService, err := remote.NewRemoteRuntimeServiceBuilder().WithEndpoint(socket(folder)).WithConnectionTimeout(2 * time.Minute).Build(ctx)
	if err != nil {
		return err
	}
	imageService, err := remote.NewRemoteImageServiceBuilder().WithEndpoint(socket(folder)).WithConnectionTimeout(2 * time.Minute).Build(ctx)
	if err != nil {
		return err
	}
	klog.Infof("boot %s of node %s", boot, node)
	hardware := &machine{Fake: cadvisortest.Fake{NodeName: node}, boot: boot}
	kubemark.NewHollowKubelet(flags, settings, client, heartbeat, hardware, imageService, runtimeService, cm.NewStubContainerManager()).Run(ctx)
	return nil
}
