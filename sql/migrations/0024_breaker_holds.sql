-- 0024 breaker holds: a person may hold a breaker open until an instant; from then on it may be probed.
--
-- Locks: ACCESS EXCLUSIVE on breaker for an instant; its rows are few.
-- Old pods: may keep running; they obey such a hold, but cannot take the first probe after it: a new pod does.

ALTER TABLE cortex.breaker
    DROP CONSTRAINT open_until_unless_forced,
    ADD CONSTRAINT open_until_unless_forced CHECK (
        CASE WHEN state = 'CLOSED' THEN open_until IS NULL ELSE open_until IS NOT NULL OR forced_by IS NOT NULL END);
COMMENT ON COLUMN cortex.breaker.open_until IS
    'From then on it may be probed; null while a person holds it open without an end.';
COMMENT ON COLUMN cortex.breaker.forced_by IS
    'Who holds it open: until open_until if that is told, until somebody closes it, or until it is probed.';
