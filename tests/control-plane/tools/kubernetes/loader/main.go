// The loader fills a cluster for measurements: it writes objects straight into
// etcd, in the API server's own storage encoding, because 150,000 pods take
// most of an hour through the API and less than a minute this way. The API
// server sees them as if another API server had written them.
//
//	loader -etcd http://127.0.0.1:2379 -nodes 5000 -pods 150000 -pdbs 1000
//	loader compact -etcd http://127.0.0.1:2379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// What the loader's exit code tells: the flag package uses 2 for its own errors too.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	var usage usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "loader: %v (see loader -help)\n", err)
		os.Exit(exitUsage)
	default:
		fmt.Fprintf(os.Stderr, "loader: %v\n", err)
		os.Exit(exitFailed)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "compact" {
		return runCompact(ctx, args[1:])
	}
	return runFill(ctx, args)
}

func runFill(ctx context.Context, args []string) error {
	plan, err := parsePlan(args)
	if err != nil {
		return err
	}
	client, err := connect(ctx, plan.etcd)
	if err != nil {
		return err
	}
	defer client.Close()

	began := time.Now()
	if err := ensureNamespaces(ctx, client, plan.namespaces(), began); err != nil {
		return err
	}
	written, err := writeAll(ctx, client, plan.workers, plan.records(began))
	if err != nil {
		return fmt.Errorf("stopped after %d objects: %w", written, err)
	}
	fmt.Printf("wrote %d objects in %.1f s\n", written, time.Since(began).Seconds())
	return nil
}

func runCompact(ctx context.Context, args []string) error {
	endpoint, err := parseCompact(args)
	if err != nil {
		return err
	}
	client, err := connect(ctx, endpoint)
	if err != nil {
		return err
	}
	defer client.Close()
	revision, err := compact(ctx, client)
	if err != nil {
		return err
	}
	fmt.Printf("compacted at revision %d\n", revision)
	return nil
}
