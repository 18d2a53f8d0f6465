package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/statusapi"
)

// TestStatusTable prints a status for people and for programs.
func TestStatusTable(t *testing.T) {
	now := time.Now()
	s := &statusapi.Status{
		Role: statusapi.Leader, Addresses: []string{"https://127.0.0.1:6443", "unix:/run/t.sock"}, Version: "0.3.0-dev", Kubernetes: "v1.36.3", Started: now.Add(-time.Hour),
		Objects: statusapi.Objects{Count: 12, Resources: 3, MemoryBytes: 1 << 20},
		History: statusapi.History{Oldest: statusapi.Revision{ResourceVersion: 5}, Newest: statusapi.Revision{ResourceVersion: 9, Time: now}},
		Storage: statusapi.Storage{Kind: statusapi.Etcd, LogBytes: 2 << 20, Members: []statusapi.Member{
			{URL: "http://a:2379", Version: "3.6.16", Leader: true}, {URL: "http://b:2379", Error: "unreachable"},
		}},
		Servers: []statusapi.Server{{Identity: "x", Address: "10.0.0.1:6443", Self: true, Leader: true, Renewed: now}},
		Follows: &statusapi.Follows{URL: "https://other:6443", LagSeconds: 1.5, LagRevisions: 7},
		Backups: &statusapi.Backups{
			Schedule: "@daily", Place: "s3://b/f/", Next: now.Add(time.Hour + time.Second), Kept: 2,
			Last:    &statusapi.Backup{Name: "tidemark-20260101T000000Z.tar", Time: now.Add(-time.Hour), Bytes: 3 << 20},
			Failure: &statusapi.Failure{Time: now, Error: "the bucket\nis gone"},
		},
		Forks: []statusapi.Fork{{Name: "try", Kept: true}},
	}
	var text strings.Builder
	if err := new(statusFlags).print(&text, s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"address    https://127.0.0.1:6443, unix:/run/t.sock\n", "version    0.3.0-dev, serving the API of Kubernetes v1.36.3, since ", "role       leader\n",
		"follows    https://other:6443, not connected, 1.5 s and 7 changes behind\n", "server     x at 10.0.0.1:6443, leads, this one, renewed ",
		"objects    12 of 3 resources, 1.0 MiB in memory\n", "history    resource versions 5 (time unknown) to 9 (", "storage    etcd, 2.0 MiB\n",
		"etcd       http://a:2379, version 3.6.16, 0.0 MiB, leads\n", "etcd       http://b:2379: unreachable\n",
		"backups    last tidemark-20260101T000000Z.tar, 3.0 MiB, ", "1h0m0s ago in s3://b/f/; 2 kept, 0.0 MiB; next ", "FAILED ", "forks      1\n", "fork       try, kept\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, &text)
		}
	}
	text.Reset()
	if err := new(statusFlags).print(&text, &statusapi.Status{Role: statusapi.Stopped, MovedTo: "https://etcd:2379", Follows: &statusapi.Follows{URL: "https://other:6443"}}); err != nil ||
		!strings.Contains(text.String(), "moved      to https://etcd:2379; servers refuse the directory\ncopy of    https://other:6443\n") {
		t.Errorf("%v: a stopped directory:\n%s", err, &text)
	}
	text.Reset()
	if err := (&statusFlags{output: "json"}).print(&text, s); err != nil {
		t.Fatal(err)
	}
	var read statusapi.Status
	if err := json.Unmarshal([]byte(text.String()), &read); err != nil || read.Backups.Last.Bytes != 3<<20 || strings.Contains(text.String(), "0001-01-01") {
		t.Errorf("%v: %s", err, &text)
	}
	text.Reset()
	if err := (&statusFlags{output: "yaml"}).print(&text, s); err != nil || !strings.Contains(text.String(), "role: leader\n") {
		t.Errorf("%v: %s", err, &text)
	}
}

// TestBackupFlags: flags of backups that are refused.
func TestBackupFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"wants a place":  {"--backup-schedule=@daily"},
		"in memory only": {"--backup-schedule=@daily", "--backup-dir=" + t.TempDir(), "--in-memory", "--port=0"},
	} {
		root, _ := newRoot()
		root.SetArgs(append([]string{"serve"}, args...))
		root.SetOut(new(strings.Builder))
		root.SetErr(new(strings.Builder))
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}
