// vcenter is a vCenter to be fenced by: the simulator of govmomi, with a login, a certificate, and a way for a test to look
// at its machines, to change them, and to make its calls fail.
//
// The simulator has no WSDL, which fence_vmware_soap asks for first. Ours has the calls that this agent makes, and no other.
package main

import (
	"context"
	"crypto/tls"
	_ "embed"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/url"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

//go:embed vimService.wsdl
var wsdl []byte

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "where it listens")
	user := flag.String("user", "", "whom it lets in")
	password := flag.String("password", "", "how")
	certificate := flag.String("certificate", "", "its certificate")
	key := flag.String("key", "", "the key of it")
	flag.Parse()
	pair, err := tls.LoadX509KeyPair(*certificate, *key)
	if err != nil {
		log.Fatal(err)
	}
	model := simulator.VPX()
	if err := model.Create(); err != nil {
		log.Fatal(err)
	}
	service := model.Service
	service.Listen = &url.URL{Host: *listen, User: url.UserPassword(*user, *password)}
	service.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	service.HandleFunc("/sdk/vimService.wsdl", func(answer http.ResponseWriter, _ *http.Request) {
		answer.Header().Set("Content-Type", "text/xml")
		_, _ = answer.Write(wsdl)
	})
	rig{service}.register()
	service.NewServer()
	select {}
}

// rig is what a test asks beside the calls of vSphere.
type rig struct{ service *simulator.Service }

func (r rig) register() {
	for name, does := range map[string]func(context.Context, http.ResponseWriter, *http.Request) error{
		"machines": r.machines, "suspend": r.suspend, "destroy": r.destroy, "fault": r.fault,
	} {
		r.service.HandleFunc("/rig/"+name, func(answer http.ResponseWriter, request *http.Request) {
			if err := does(request.Context(), answer, request); err != nil {
				http.Error(answer, err.Error(), http.StatusInternalServerError)
			}
		})
	}
}

// One machine a line: its name, its UUID, and whether it is poweredOn, poweredOff or suspended.
func (r rig) machines(ctx context.Context, answer http.ResponseWriter, _ *http.Request) error {
	client, err := vim25.NewClient(ctx, r.service)
	if err != nil {
		return err
	}
	root, kinds := client.ServiceContent.RootFolder, []string{"VirtualMachine"}
	found, err := view.NewManager(client).CreateContainerView(ctx, root, kinds, true)
	if err != nil {
		return err
	}
	var all []mo.VirtualMachine
	if err := found.Retrieve(ctx, kinds, []string{"name", "config.uuid", "runtime.powerState"}, &all); err != nil {
		return err
	}
	for _, one := range all {
		fmt.Fprintln(answer, one.Name, one.Config.Uuid, one.Runtime.PowerState)
	}
	return nil
}

func (r rig) suspend(ctx context.Context, _ http.ResponseWriter, request *http.Request) error {
	return r.change(ctx, request, (*object.VirtualMachine).Suspend)
}

func (r rig) destroy(ctx context.Context, _ http.ResponseWriter, request *http.Request) error {
	return r.change(ctx, request, func(machine *object.VirtualMachine, ctx context.Context) (*object.Task, error) {
		// It must be off, and is left as it is if it was.
		if off, err := machine.PowerOff(ctx); err == nil {
			_ = off.Wait(ctx)
		}
		return machine.Destroy(ctx)
	})
}

func (r rig) change(ctx context.Context, request *http.Request, how func(*object.VirtualMachine, context.Context) (*object.Task, error)) error {
	client, err := vim25.NewClient(ctx, r.service)
	if err != nil {
		return err
	}
	found, err := object.NewSearchIndex(client).FindByUuid(ctx, nil, request.FormValue("uuid"), true, nil)
	if err != nil {
		return err
	}
	if found == nil {
		return fmt.Errorf("there is no machine %q", request.FormValue("uuid"))
	}
	task, err := how(object.NewVirtualMachine(client, found.Reference()), ctx)
	if err != nil {
		return err
	}
	return task.Wait(ctx)
}

// One call fails from now on, in the way that vSphere's reference has for it; without a call, none does.
func (r rig) fault(_ context.Context, _ http.ResponseWriter, request *http.Request) error {
	r.service.ClearFaultRules()
	method := request.FormValue("method")
	if method == "" {
		return nil
	}
	faults := map[string]struct {
		fault types.BaseMethodFault
		says  string
	}{
		"NoPermission":     {&types.NoPermission{PrivilegeId: "VirtualMachine.Interact.PowerOff"}, "Permission to perform this operation was denied."},
		"NotAuthenticated": {&types.NotAuthenticated{}, "The session is not authenticated."},
		"Throttled":        {&types.LimitExceeded{Property: "sessions"}, "The number of concurrent sessions is exceeded."},
	}
	chosen, is := faults[request.FormValue("fault")]
	if !is {
		return fmt.Errorf("there is no fault %q", request.FormValue("fault"))
	}
	r.service.AddFaultRule(&simulator.FaultInjectionRule{
		MethodName: method, ObjectType: "*", ObjectName: "*", Probability: 1, Enabled: true,
		FaultType: simulator.FaultTypeCustom, Fault: chosen.fault, Message: chosen.says,
	})
	return nil
}
