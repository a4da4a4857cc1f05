-- The one key of a whole fleet's probes; master keys and their rotation are a document.
DROP TABLE probe_key;
