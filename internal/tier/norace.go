//go:build !race

package tier

// Detector reports whether the race detector runs. It changes what a test allocates, and takes several times the CPU.
const Detector = false
