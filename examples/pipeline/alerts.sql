-- The same as alerts.toml. Lines which begin with --! are the TOML of the pipeline; the statements
-- below it are its steps.

--! name = "alerts_sql"
--! sources.readings = {queue = "$queue/example/readings", schema = "vin STRING, celsius DOUBLE"}
--! sources.fleet = {path = "fleet.csv"}
--! sink.queue = "$queue/example/alerts"

CREATE TEMPORARY VIEW hot_readings AS
SELECT vin, celsius, ts FROM readings WHERE celsius > 90;

SELECT hot_readings.vin AS key, hot_readings.vin, celsius, owner
FROM hot_readings LEFT JOIN fleet ON fleet.vin = hot_readings.vin;
