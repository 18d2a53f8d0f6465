package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/backups"
	"github.com/tidemark-dev/tidemark/backups/s3"
)

// backupScheduleFlags are the flags of backups on a schedule.
type backupScheduleFlags struct {
	schedule, dir                             string
	keep                                      int
	maxAge                                    time.Duration
	endpoint, region, caFile, credentialsFile string
}

func (b *backupScheduleFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&b.schedule, "backup-schedule", "", `when to back up the data directory: five fields of cron in local time, as "0 */6 * * *", or @hourly, @daily, @every 6h; "TZ=Europe/Berlin " before it is a time zone (default: never)`)
	flags.StringVar(&b.dir, "backup-dir", "", "where to keep the backups of --backup-schedule: a directory, which no other server uses, or s3://BUCKET/FOLDER")
	flags.IntVar(&b.keep, "backup-retention", tidemark.DefaultBackupKeep, "how many backups to keep, 0 for no limit; older ones are removed when another one was made")
	flags.DurationVar(&b.maxAge, "backup-retention-age", 0, "how long to keep backups, 0 for no limit; the newest one is always kept")
	flags.StringVar(&b.endpoint, "backup-s3-endpoint", "", "URL of the S3 service of --backup-dir (default: that of AWS in the region)")
	flags.StringVar(&b.region, "backup-s3-region", "", "region of the bucket (default: us-east-1)")
	flags.StringVar(&b.caFile, "backup-s3-ca-file", "", "file with the certificate authorities (PEM) of the S3 service (default: those of the system)")
	flags.StringVar(&b.credentialsFile, "backup-s3-credentials-file", "", "file with the credentials for the bucket in its section [default], as ~/.aws/credentials; read for each request (default: the variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN)")
}

// check reports invalid values, and gives the server the others.
func (b *backupScheduleFlags) check(f *serveFlags) error {
	s := &f.server
	switch {
	case b.schedule == "" && b.dir == "":
		if b.hasS3() {
			return errors.New("the --backup-s3 flags are for --backup-dir=s3://BUCKET/FOLDER")
		}
		return nil
	case b.schedule == "":
		return errors.New("--backup-dir is for --backup-schedule: say when to back up, as --backup-schedule=@daily")
	case b.dir == "":
		return errors.New("--backup-schedule wants a place: name a directory with --backup-dir, or s3://BUCKET/FOLDER")
	case b.keep < 0 || b.maxAge < 0:
		return errors.New("--backup-retention and --backup-retention-age want 0 for no limit, or more")
	case f.inMemory:
		return errors.New("--backup-schedule is for a data directory: the objects are in memory only (--in-memory)")
	case f.etcd.on():
		return errors.New("--backup-schedule is for a data directory: with --etcd-servers, back etcd up, as with etcdctl snapshot save")
	case f.past():
		return errors.New("--backup-schedule is for the newest state of a data directory: with an older one, changes are in memory alone")
	}
	place, err := b.place()
	if err != nil {
		return err
	}
	s.Backups = tidemark.Backups{Schedule: b.schedule, Place: place, Keep: b.keep, MaxAge: b.maxAge}
	if b.keep == 0 {
		s.Backups.Keep = -1
	}
	if err := s.Backups.Check(); err != nil {
		return fmt.Errorf("--backup-schedule: %w", err)
	}
	return nil
}

// hasS3 reports whether a flag for a bucket is set.
func (b *backupScheduleFlags) hasS3() bool {
	return b.endpoint != "" || b.region != "" || b.caFile != "" || b.credentialsFile != ""
}

// place returns where the backups are kept.
func (b *backupScheduleFlags) place() (backups.Place, error) {
	bucket, ok := strings.CutPrefix(b.dir, "s3://")
	if !ok {
		if b.hasS3() {
			return nil, errors.New("the --backup-s3 flags are for --backup-dir=s3://BUCKET/FOLDER")
		}
		path, err := filepath.Abs(b.dir)
		return &backups.Folder{Path: path}, err
	}
	name, folder, _ := strings.Cut(bucket, "/")
	p := &s3.Bucket{Name: name, Folder: strings.Trim(folder, "/"), Endpoint: b.endpoint, Region: cmp.Or(b.region, "us-east-1"), CredentialsFile: b.credentialsFile}
	if b.caFile == "" {
		return p, nil
	}
	pem, err := os.ReadFile(b.caFile)
	if err != nil {
		return nil, fmt.Errorf("--backup-s3-ca-file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--backup-s3-ca-file: %s has no certificate", b.caFile)
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	p.Client = &http.Client{Transport: t}
	return p, nil
}
