package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// controlFlags are the flags for programs that start the server and drive it.
type controlFlags struct {
	address        string // a socket, or a loopback address
	tokenFile      string
	exitIdle       time.Duration // zero: never
	readyFD        int           // negative: none
	exitWithParent bool

	readyFile *os.File // of readyFD, set by check; a collected File would close the descriptor
}

func (f *controlFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "control", "", "serve the control API, which creates worlds and drives tests: a path is a unix socket for this user, 127.0.0.1:PORT is loopback TCP with --control-token-file")
	flags.StringVar(&f.tokenFile, "control-token-file", "", "file with the bearer token for --control over TCP; created if it does not exist")
	flags.DurationVar(&f.exitIdle, "exit-idle", 0, "stop when no client of the control API has held a lease for this time; 0 is never")
	flags.IntVar(&f.readyFD, "ready-fd", -1, "file descriptor to write one line of JSON to when the server is ready: url, kubeconfig, control, pid; with 1, which is the standard output, all other output goes to the standard error")
	flags.BoolVar(&f.exitWithParent, "exit-with-parent", false, "stop when the process that started the server has ended")
}

// tcp returns the loopback address of --control, empty for a socket.
func (f *controlFlags) tcp() (string, error) {
	host, port, err := net.SplitHostPort(f.address)
	if err != nil || strings.ContainsAny(f.address, `/\`) {
		return "", nil
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return "", fmt.Errorf("--control=%s: the control API listens on loopback addresses only: want 127.0.0.1:PORT, [::1]:PORT, or the path of a unix socket", f.address)
	}
	return net.JoinHostPort(host, port), nil
}

func (f *controlFlags) check() error {
	address, err := f.tcp()
	if err != nil {
		return err
	}
	switch {
	case f.exitIdle < 0:
		return fmt.Errorf("--exit-idle=%v: want 0 or more", f.exitIdle)
	case f.exitIdle > 0 && f.address == "":
		return errors.New("--exit-idle wants --control, which gives the leases")
	case address != "" && f.tokenFile == "":
		return fmt.Errorf("--control=%s wants --control-token-file: each user of this machine can connect to a port", f.address)
	case address == "" && f.tokenFile != "":
		return errors.New("--control-token-file is for --control over TCP: a socket is protected by its file mode")
	case f.readyFD == 0 || f.readyFD < -1:
		return fmt.Errorf("--ready-fd=%d: want 1 or more", f.readyFD)
	}
	switch f.readyFD {
	case -1:
		return nil
	case 1:
		f.readyFile = os.Stdout
	case 2:
		f.readyFile = os.Stderr
	default:
		f.readyFile = os.NewFile(uintptr(f.readyFD), "ready-fd")
	}
	if _, err := f.readyFile.Stat(); err != nil {
		return fmt.Errorf("--ready-fd=%d is not an open file descriptor", f.readyFD)
	}
	return nil
}
