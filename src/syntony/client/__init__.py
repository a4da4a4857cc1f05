"""A controller's HTTP API in Python: the same messages as everywhere, typed.

```python
from syntony.client import Client
from syntony.wire.incidents import IncidentsQuery

with Client("https://syntony.example:8445", token=TOKEN, ca="ca.crt") as fleet:
    for incident in fleet.ask(IncidentsQuery()).incidents:
        print(incident["summary"])
```
"""

from syntony.client.http import Access, Client, ServerEvent

__all__ = ["Access", "Client", "ServerEvent"]
