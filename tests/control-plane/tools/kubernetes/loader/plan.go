package main

import (
	"errors"
	"flag"
	"fmt"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
)

// podsPerApp is how many pods share an "app" label, and with it a ReplicaSet
// and a budget.
const podsPerApp = 20

// plan says what to write.
type plan struct {
	etcd      string
	namespace string
	prefix    string

	nodes      int
	leases     bool
	pods       int
	orphans    int
	ghosts     int
	terminated int
	pdbs       int
	workers    int
}

// record is one object and the etcd key it belongs under.
type record struct {
	key    string
	object runtime.Object
}

// usageError is a mistake on the command line, not a failure of the work.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

func etcdFlag(flags *flag.FlagSet) *string {
	return flags.String("etcd", "http://127.0.0.1:2379", "`URL` of an etcd member's client port")
}

func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return usageError{err}
	}
	if flags.NArg() > 0 {
		return usagef("unexpected argument %q", flags.Arg(0))
	}
	return nil
}

func parseCompact(args []string) (string, error) {
	flags := flag.NewFlagSet("loader compact", flag.ContinueOnError)
	endpoint := etcdFlag(flags)
	err := parse(flags, args)
	return *endpoint, err
}

func parsePlan(args []string) (*plan, error) {
	var p plan
	flags := flag.NewFlagSet("loader", flag.ContinueOnError)
	endpoint := etcdFlag(flags)
	flags.StringVar(&p.namespace, "namespace", "load", "namespace of the pods, ReplicaSets and budgets; made if missing")
	flags.StringVar(&p.prefix, "prefix", "p", "start of the names of pods, ReplicaSets and budgets, so that a second run does not collide with the first")
	flags.IntVar(&p.nodes, "nodes", 0, "how many ready nodes to write, named node-0, node-1, …")
	flags.BoolVar(&p.leases, "leases", true, "write a just renewed node lease for each node")
	flags.IntVar(&p.pods, "pods", 0, "how many running pods to write, spread evenly over -nodes (node-0 if that is 0)")
	flags.IntVar(&p.orphans, "orphans", 0, "how many running pods to bind to nodes that do not exist")
	flags.IntVar(&p.ghosts, "ghosts", 50, "how many such nodes the orphans are spread over, named ghost-0, ghost-1, …")
	flags.IntVar(&p.terminated, "terminated", 0, "how many pods that ended (phase Succeeded) to write, on the same nodes as -pods")
	flags.IntVar(&p.pdbs, "pdbs", 0, "how many budgets to write, each with the ReplicaSet of its 20 pods")
	flags.IntVar(&p.workers, "workers", 32, "how many writes to keep in flight")
	if err := parse(flags, args); err != nil {
		return nil, err
	}
	p.etcd = *endpoint
	return &p, p.validate()
}

func (p *plan) validate() error {
	for name, count := range map[string]int{
		"nodes": p.nodes, "pods": p.pods, "orphans": p.orphans, "terminated": p.terminated, "pdbs": p.pdbs,
	} {
		if count < 0 {
			return usagef("-%s is %d; it cannot be negative", name, count)
		}
	}
	if p.workers < 1 || p.workers > 1024 {
		return usagef("-workers is %d; choose 1 to 1024", p.workers)
	}
	if p.orphans > 0 && p.ghosts < 1 {
		return usagef("-orphans needs -ghosts of at least 1")
	}
	for name, value := range map[string]string{"namespace": p.namespace, "prefix": p.prefix} {
		if problems := validation.IsDNS1123Label(value); len(problems) > 0 {
			return usagef("-%s %q: %s", name, value, problems[0])
		}
	}
	return nil
}

// namespaces are the ones that the records live in.
func (p *plan) namespaces() []string {
	var names []string
	if p.pods+p.orphans+p.terminated+p.pdbs > 0 {
		names = append(names, p.namespace)
	}
	if p.nodes > 0 && p.leases {
		names = append(names, leaseNamespace)
	}
	return names
}

// records yields everything to write: nodes before the pods that name them,
// owners before the pods they own.
func (p *plan) records(now time.Time) iter.Seq[record] {
	return func(yield func(record) bool) {
		for _, part := range []iter.Seq[record]{
			nodeRecords(p, now), budgetRecords(p, now), podRecords(p, now),
		} {
			for r := range part {
				if !yield(r) {
					return
				}
			}
		}
	}
}
