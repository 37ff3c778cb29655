"""An SQS that attacks. Its batches are answered event by event."""

import json

from hostile import POISON, TAG, Request
from hostile_webhook import HttpFake, page


class Sqs(HttpFake):
    extension = "outbox_aws"

    def statements(self, more: str) -> list[str]:
        url = f"http://127.0.0.1:{self.port}"
        return [f"CREATE SERVER sut FOREIGN DATA WRAPPER outbox_aws OPTIONS (endpoint '{url}', allow_http 'true', allow_networks '127.0.0.0/8',"
                f" target '{url}/1/events', aws_region 'eu-central-1', timeout '15s'{more})",
                "CREATE USER MAPPING FOR PUBLIC SERVER sut OPTIONS (aws_access_key_id 'AKIAIOSFODNN7EXAMPLE', aws_secret_access_key 'wJalrXUtnFEMI')"]

    @staticmethod
    def _is_refused(request: Request, entry: dict) -> bool:
        return not request.poison or POISON.decode() in entry["MessageBody"]

    def answer(self, request: Request, refused: bool = False) -> bytes:
        sent, failed = [], []
        for entry in json.loads(request.about)["Entries"]:
            if refused and self._is_refused(request, entry):
                failed.append({"Id": entry["Id"], "Code": "InvalidMessageContents", "SenderFault": True, "Message": "not this event"})
            else:
                sent.append({"Id": entry["Id"], "MessageId": "m-" + entry["Id"]})
        return page("200 OK", json.dumps({"Successful": sent, "Failed": failed}).encode(), "Content-Type: application/x-amz-json-1.0")

    def stored_besides(self, request: Request) -> list[str]:
        entries = json.loads(request.about)["Entries"]
        return [tag.decode() for entry in entries if not self._is_refused(request, entry) for tag in TAG.findall(entry["MessageBody"].encode())]
