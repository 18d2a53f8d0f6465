package webhook

import "time"

func init() { retries.Duration = time.Millisecond }
