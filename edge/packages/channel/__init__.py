"""Release channels: versions, rollback, freeze, expiry and key rotation by TUF; any static web server serves one."""
